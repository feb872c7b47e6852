//! The operator's rights in the namespaces of ensembles, and the command that grants them.

/// Name of the operator's role in the namespaces of ensembles.
pub const NAMESPACE_ROLE: &str = "mczk-ensemble-namespace";

/// The command that grants the operator its rights in a namespace. The API server names the refused user in its message.
#[must_use]
pub fn grant(namespace: &str, refusal: &str) -> String {
    let user =
        refusal.split_once("User \"").and_then(|(_, rest)| rest.split_once('"')).map_or("USER", |(user, _)| user);
    format!(
        "run kubectl --namespace {namespace} create rolebinding mczk-operator --clusterrole={NAMESPACE_ROLE} --user={user}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_refused_user() {
        let refusal =
            r#"secrets is forbidden: User "ops" cannot create resource "secrets" in API group "" in the namespace "a""#;
        assert_eq!(
            grant("a", refusal),
            "run kubectl --namespace a create rolebinding mczk-operator --clusterrole=mczk-ensemble-namespace --user=ops"
        );
        assert!(grant("a", "no").ends_with("--user=USER"));
    }
}
