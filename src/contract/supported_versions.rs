//! The supported versions of Kubernetes in member clusters. `docs/reference/versions.md` has the whole table, with Karmada,
//! which reports no version of its own.

/// The oldest and the newest minor version of Kubernetes 1 in member clusters.
const KUBERNETES: (u32, u32) = (31, 35);

/// The supported versions of Kubernetes, for users.
#[must_use]
pub(crate) fn kubernetes() -> String {
    format!("1.{} to 1.{}", KUBERNETES.0, KUBERNETES.1)
}

/// True if a member cluster with this version of Kubernetes is supported. A version that Karmada has not reported counts as
/// supported: there is nothing to warn of.
#[must_use]
pub(crate) fn supports_kubernetes(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| {
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(1), Some(minor)) => (KUBERNETES.0..=KUBERNETES.1).contains(&minor),
        (Some(_), _) => false,
        (None, _) => version.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_table_of_the_documentation_has_the_range() {
        let table = include_str!("../../docs/reference/versions.md");
        assert!(table.contains(&format!("| {} ", kubernetes())), "{table}");
    }

    #[rstest]
    #[case("v1.35.3", true)]
    #[case("v1.31.0+k3s1", true)]
    #[case("v1.33-eks-1", true)]
    #[case("v1.30.9", false)]
    #[case("v1.36.0", false)]
    #[case("v2.0.0", false)]
    #[case("nonsense", false)]
    #[case("", true)]
    fn versions_of_member_clusters(#[case] version: &str, #[case] expected: bool) {
        assert_eq!(supports_kubernetes(version), expected);
    }
}
