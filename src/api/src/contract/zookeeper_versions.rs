//! Versions of ZooKeeper that are known to lose acknowledged writes.

/// Version, and the issue of ZooKeeper that describes the loss. 3.9.4 has none of them.
const UNSAFE: [(&str, &str); 3] =
    [("3.9.0", "ZOOKEEPER-4785"), ("3.9.1", "ZOOKEEPER-4785"), ("3.9.3", "ZOOKEEPER-4925")];

/// The first version that has none of the known losses.
pub const SAFE_SINCE: &str = "3.9.4";

/// The issue of ZooKeeper that makes a version lose acknowledged writes, if one is known.
#[must_use]
pub fn known_loss(version: &str) -> Option<&'static str> {
    UNSAFE.iter().find(|(unsafe_version, _)| *unsafe_version == version).map(|(_, issue)| *issue)
}

/// The number of a version as ZooKeeper writes it: `3.9.4-7246445, built on ...` is `3.9.4`.
#[must_use]
pub fn number(text: &str) -> String {
    text.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_loses_writes_is_known_by_its_number() {
        assert_eq!(number("3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024-10-17 23:21 UTC"), "3.9.3");
        assert_eq!(known_loss("3.9.3"), Some("ZOOKEEPER-4925"));
        assert_eq!(known_loss(SAFE_SINCE), None);
    }
}
