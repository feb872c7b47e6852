//! Versions in the names of images.

/// The tag of an image, or else its digest. Mirrors keep both.
pub(super) fn version(image: &str) -> Option<&str> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A port of the registry stands before the last slash.
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map(|(_, tag)| tag).or(digest)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("mczk:0.1.0", Some("0.1.0"))]
    #[case("registry:5000/a/mczk:0.1.0@sha256:abc", Some("0.1.0"))]
    #[case("registry:5000/mczk", None)]
    #[case("registry/mczk@sha256:abc", Some("sha256:abc"))]
    fn versions(#[case] image: &str, #[case] expected: Option<&str>) {
        assert_eq!(version(image), expected);
    }
}
