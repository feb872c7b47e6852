//! Names of an ensemble's servers, Services and pods.

use crate::{
    contract::canonical_json::hash_text,
    network::{Names, NetworkMode},
    zookeeper::Role,
};

/// The incarnation of an ensemble: 6 hexadecimal digits of a hash of the object's uid and the number of its bootstraps. It is
/// part of the names of all servers, so that no name resolves to a server of a former incarnation.
#[must_use]
pub fn incarnation(uid: &str, bootstraps: u32) -> String {
    hash_text(&format!("{uid}/{bootstraps}")).chars().take(6).collect()
}

/// The parts of the names of an ensemble's servers.
#[derive(Clone, Copy, Debug)]
pub struct Naming<'a> {
    /// Name of the MultiClusterZooKeeper.
    pub name: &'a str,
    /// Namespace of the MultiClusterZooKeeper.
    pub namespace: &'a str,
    /// Incarnation of the ensemble.
    pub incarnation: &'a str,
    /// Rule for names across clusters; the rule of multi-cluster services if absent.
    pub names: Option<&'a Names>,
}

impl Naming<'_> {
    /// Name of the headless Service, and of the StatefulSet of the voters.
    #[must_use]
    pub fn service(&self) -> String {
        format!("{}-{}", self.name, self.incarnation)
    }

    /// Name of the pod of a server.
    #[must_use]
    pub fn pod(&self, role: Role, ordinal: i32) -> String {
        match role {
            Role::Voter => format!("{}-{ordinal}", self.service()),
            Role::Observer => format!("{}-o-{ordinal}", self.service()),
        }
    }

    /// Name by which servers and clients in all clusters reach a server.
    #[must_use]
    pub fn host(&self, cluster: &str, role: Role, ordinal: i32) -> String {
        let cluster_id = self
            .names
            .and_then(|n| n.cluster_ids.iter().find(|c| c.cluster == cluster))
            .map_or(cluster, |c| c.id.as_str());
        let domain = self.names.and_then(|n| n.cluster_domain.as_deref());
        let form = match self.names.map_or(NetworkMode::Mcs, |n| n.mode) {
            NetworkMode::Mcs => {
                format!("{{pod}}.{{clusterId}}.{{service}}.{{namespace}}.svc.{}", domain.unwrap_or("clusterset.local"))
            }
            NetworkMode::Flat => {
                format!("{{pod}}.{{service}}.{{namespace}}.svc.{}", domain.unwrap_or("{clusterId}.local"))
            }
            NetworkMode::Custom => self.names.and_then(|n| n.fqdn_template.clone()).unwrap_or_default(),
        };
        form.replace("{pod}", &self.pod(role, ordinal))
            .replace("{clusterId}", cluster_id)
            .replace("{cluster}", cluster)
            .replace("{service}", &self.service())
            .replace("{namespace}", self.namespace)
            .replace("{ordinal}", &ordinal.to_string())
    }
}

/// Role and ordinal in the name of a pod, if the pod belongs to the incarnation.
#[must_use]
pub fn role_and_ordinal(naming: Naming<'_>, pod: &str) -> Option<(Role, i32)> {
    let rest = pod.strip_prefix(&naming.service())?.strip_prefix('-')?;
    match rest.strip_prefix("o-") {
        Some(ordinal) => Some((Role::Observer, ordinal.parse().ok()?)),
        None => Some((Role::Voter, rest.parse().ok()?)),
    }
}

/// Name of the claim of a pod, by the rule of StatefulSets.
#[must_use]
pub fn claim_of(pod: &str) -> String {
    format!("data-{pod}")
}

/// Name of the ResourceBinding that Karmada creates for a template.
#[must_use]
pub fn binding_name(name: &str) -> String {
    format!("{name}-zookeeper").to_lowercase().replace(':', ".")
}

/// Name of the template of a ResourceBinding, if that is a ZooKeeper object: the inverse of [`binding_name`].
#[must_use]
pub fn template_of_binding(binding: &str) -> Option<&str> {
    binding.strip_suffix("-zookeeper")
}

/// Name of the ZooKeeper object that asks spares whether they could hold servers. No MultiClusterZooKeeper has a dot in its
/// name.
#[must_use]
pub fn spare_check_name(name: &str) -> String {
    format!("{name}.spares")
}

/// Name of the MultiClusterZooKeeper to which a ZooKeeper object of the control plane belongs.
#[must_use]
pub fn ensemble_of_template(template: &str) -> &str {
    template.strip_suffix(".spares").unwrap_or(template)
}

/// Name of the PropagationPolicy and of the OverridePolicy of a MultiClusterZooKeeper.
#[must_use]
pub fn policy_name(name: &str) -> String {
    format!("mczk-{name}")
}

/// True for a name as Kubernetes has it for namespaces: 1 to 63 lowercase letters, digits and hyphens between them.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// The parts of `NAMESPACE/NAME`.
///
/// # Errors
/// How to write it, if the text has another form.
pub fn namespaced(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write it as NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NAMING: Naming<'static> = Naming { name: "zk", namespace: "ns", incarnation: "abc123", names: None };

    #[rstest]
    #[case::mcs(json!({ "mode": "MCS" }), "zk-abc123-2.m1.zk-abc123.ns.svc.clusterset.local")]
    #[case::mcs_domain(json!({ "mode": "MCS", "clusterDomain": "lan" }), "zk-abc123-2.m1.zk-abc123.ns.svc.lan")]
    #[case::mcs_ids(json!({ "mode": "MCS", "clusterIds": [{ "cluster": "m1", "id": "eins" }] }), "zk-abc123-2.eins.zk-abc123.ns.svc.clusterset.local")]
    #[case::flat(json!({ "mode": "Flat" }), "zk-abc123-2.zk-abc123.ns.svc.m1.local")]
    #[case::flat_domain(json!({ "mode": "Flat", "clusterDomain": "{cluster}.lan" }), "zk-abc123-2.zk-abc123.ns.svc.m1.lan")]
    #[case::flat_ids(json!({ "mode": "Flat", "clusterIds": [{ "cluster": "m1", "id": "eins" }] }), "zk-abc123-2.zk-abc123.ns.svc.eins.local")]
    #[case::custom(json!({ "mode": "Custom", "fqdnTemplate": "{pod}.{cluster}.{service}.{namespace}.{ordinal}" }), "zk-abc123-2.m1.zk-abc123.ns.2")]
    #[case::custom_ids(json!({ "mode": "Custom", "fqdnTemplate": "{pod}.{clusterId}", "clusterIds": [{ "cluster": "m1", "id": "eins" }] }), "zk-abc123-2.eins")]
    #[case::id_of_another(json!({ "mode": "Custom", "fqdnTemplate": "{pod}.{clusterId}", "clusterIds": [{ "cluster": "m2", "id": "zwei" }] }), "zk-abc123-2.m1")]
    fn hosts(#[case] names: Value, #[case] expected: &str) {
        let names: Names = serde_json::from_value(names).unwrap();
        assert_eq!(Naming { names: Some(&names), ..NAMING }.host("m1", Role::Voter, 2), expected);
    }

    #[test]
    fn a_pod_name_contains_the_role() {
        assert_eq!(NAMING.pod(Role::Observer, 0), "zk-abc123-o-0");
        assert_eq!(role_and_ordinal(NAMING, "zk-abc123-o-7"), Some((Role::Observer, 7)));
        assert_eq!(role_and_ordinal(NAMING, "zk-abc123-7"), Some((Role::Voter, 7)));
        assert_eq!(role_and_ordinal(NAMING, "zk-former-7"), None);
    }

    #[test]
    fn every_incarnation_has_its_own_name() {
        assert_eq!(incarnation("u1", 0), incarnation("u1", 0));
        assert_eq!(incarnation("u1", 0).len(), 6);
        assert_ne!(incarnation("u1", 0), incarnation("u1", 1));
        assert_ne!(incarnation("u1", 0), incarnation("u2", 0));
    }
}
