//! The versions of Karmada, and of Kubernetes in member clusters, with which mczk has a run. `docs/reference/versions.md` has
//! the whole table.
//! Karmada reports no version of its own: only the images of its pods show it.

/// The minor versions of Kubernetes 1 in member clusters.
const KUBERNETES: [u32; 3] = [34, 35, 37];
/// The oldest and the newest minor version of Karmada 1.
const KARMADA: (u32, u32) = (16, 18);

/// The tested versions of Kubernetes, for users.
#[must_use]
pub fn kubernetes() -> String {
    KUBERNETES.map(|minor| format!("1.{minor}")).join(", ")
}

/// The tested versions of Karmada, for users.
#[must_use]
pub fn karmada() -> String {
    format!("1.{} to 1.{}", KARMADA.0, KARMADA.1)
}

/// True if this version of Karmada is tested, and if the text is no version, such as `latest`.
#[must_use]
pub fn is_tested_karmada(version: &str) -> bool {
    match major_and_minor(version) {
        (Some(1), Some(minor)) => (KARMADA.0..=KARMADA.1).contains(&minor),
        (Some(_), Some(_)) => false,
        _ => true,
    }
}

/// True if this version of Kubernetes in member clusters is tested. A version that Karmada has not reported counts as
/// tested: there is nothing to warn of.
#[must_use]
pub fn is_tested_kubernetes(version: &str) -> bool {
    match major_and_minor(version) {
        (Some(1), Some(minor)) => KUBERNETES.contains(&minor),
        (Some(_), _) => false,
        (None, _) => version.is_empty(),
    }
}

fn major_and_minor(version: &str) -> (Option<u32>, Option<u32>) {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| {
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    (numbers.next().flatten(), numbers.next().flatten())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_table_of_the_documentation_has_the_range() {
        let table = include_str!("../../../../docs/reference/versions.md");
        assert!(table.contains(&format!("| {} ", kubernetes())), "{table}");
        assert!(table.contains(&format!("| {} ", karmada())), "{table}");
    }

    #[rstest]
    #[case("v1.16.0", true)]
    #[case("1.18.2", true)]
    #[case("v1.15.9", false)]
    #[case("v1.19.0", false)]
    #[case("v2.0.0", false)]
    #[case("latest", true)]
    #[case("sha256:abc", true)]
    fn versions_of_karmada(#[case] version: &str, #[case] expected: bool) {
        assert_eq!(is_tested_karmada(version), expected);
    }

    #[rstest]
    #[case("v1.35.3", true)]
    #[case("v1.34.0+k3s1", true)]
    #[case("v1.34-eks-1", true)]
    #[case("v1.33.9", false)]
    #[case("v1.37.2", true)]
    #[case("v1.36.0", false)]
    #[case("v1.38.0", false)]
    #[case("v2.0.0", false)]
    #[case("nonsense", false)]
    #[case("", true)]
    fn versions_of_member_clusters(#[case] version: &str, #[case] expected: bool) {
        assert_eq!(is_tested_kubernetes(version), expected);
    }
}
