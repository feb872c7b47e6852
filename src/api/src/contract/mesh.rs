//! Service meshes whose proxies stand between servers.
//!
//! Servers have mutual TLS of their own. A proxy that takes a connection for one of its own mesh, or waits for the first bytes of a
//! client, breaks it.

/// What each mesh puts into a pod, a container or an annotation, and how users take mczk's ports out of it.
const MESHES: [(&str, &str, &str); 5] = [
    (
        "Istio",
        "istio-proxy",
        "set the annotations traffic.sidecar.istio.io/excludeInboundPorts and excludeOutboundPorts to \
         \"2888,3888,8443\", or the label sidecar.istio.io/inject to \"false\"",
    ),
    ("Istio (ambient)", "ambient.istio.io/redirection", "set the label istio.io/dataplane-mode to none"),
    (
        "Linkerd",
        "linkerd-proxy",
        "set the annotations config.linkerd.io/skip-inbound-ports and skip-outbound-ports to \"2888,3888,8443\", or \
         linkerd.io/inject to disabled",
    ),
    (
        "Kuma",
        "kuma-sidecar",
        "set the annotations traffic.kuma.io/exclude-inbound-ports and exclude-outbound-ports to \"2888,3888,8443\", or \
         the label kuma.io/sidecar-injection to disabled",
    ),
    ("Consul", "consul-dataplane", "set the annotation consul.hashicorp.com/connect-inject to \"false\""),
];

/// The mesh that put one of these containers or annotations into a pod.
pub fn mesh_of<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    parts.find_map(|part| MESHES.iter().find(|(_, own, _)| *own == part).map(|(mesh, ..)| *mesh))
}

/// What a user can do if a mesh has a proxy in the pods of servers.
#[must_use]
pub fn remedy(mesh: &str) -> String {
    let known = MESHES.iter().find(|(name, ..)| *name == mesh).map(|(.., remedy)| *remedy);
    let remedy = known.unwrap_or("exclude the ports 2888, 3888 and 8443 from it");
    format!(
        "Pods have a proxy of {mesh}, which may hold connections of servers: in spec.template.metadata, {remedy}, or disable the injection in the namespace"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(&["zookeeper", "program"], None)]
    #[case::sidecar(&["zookeeper", "istio-proxy"], Some("Istio"))]
    #[case::ambient(&["zookeeper", "ambient.istio.io/redirection"], Some("Istio (ambient)"))]
    #[case::init_container(&["linkerd-init", "linkerd-proxy", "probe"], Some("Linkerd"))]
    fn a_mesh_is_known_by_what_it_puts_into_a_pod(#[case] parts: &[&str], #[case] expected: Option<&str>) {
        assert_eq!(mesh_of(parts.iter().copied()), expected);
    }

    #[test]
    fn each_mesh_has_its_own_remedy_in_one_message() {
        for (mesh, ..) in MESHES {
            let remedy = remedy(mesh);
            assert!(remedy.contains(mesh) && remedy.len() < 400, "{remedy}");
        }
        assert!(remedy("Another").contains("exclude the ports 2888, 3888 and 8443"));
    }
}
