//! How a user names one server of an ensemble.

use std::{convert::Infallible, str::FromStr};

/// One server: its id, its pod, or its pod in one cluster. Pods of several clusters have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerName {
    /// By its id.
    Id(i32),
    /// By its pod.
    Pod {
        /// Karmada's name of the cluster, unless the user means all.
        cluster: Option<String>,
        /// Name of the pod.
        pod: String,
    },
}

impl FromStr for ServerName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match (text.parse(), text.split_once('/')) {
            (Ok(id), _) => Self::Id(id),
            (_, Some((cluster, pod))) => Self::Pod { cluster: Some(cluster.to_owned()), pod: pod.to_owned() },
            (_, None) => Self::Pod { cluster: None, pod: text.to_owned() },
        })
    }
}

impl ServerName {
    /// True if it names a server with this cluster, pod and id.
    pub(crate) fn is(&self, in_cluster: &str, of_pod: &str, with_id: Option<i32>) -> bool {
        match self {
            Self::Id(id) => with_id == Some(*id),
            Self::Pod { cluster, pod } => of_pod == pod && cluster.as_deref().is_none_or(|name| name == in_cluster),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("3", "m1", "zk-abc123-0", true)]
    #[case("4", "m1", "zk-abc123-0", false)]
    #[case("zk-abc123-0", "m1", "zk-abc123-0", true)]
    #[case("zk-abc123-0", "m2", "zk-abc123-0", true)]
    #[case("m1/zk-abc123-0", "m1", "zk-abc123-0", true)]
    #[case("m1/zk-abc123-0", "m2", "zk-abc123-0", false)]
    fn a_name_selects_servers(#[case] text: &str, #[case] cluster: &str, #[case] pod: &str, #[case] expected: bool) {
        assert_eq!(text.parse::<ServerName>().unwrap().is(cluster, pod, Some(3)), expected);
    }
}
