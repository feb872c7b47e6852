//! The request that `mczk replace` writes. Whether a volume may go is up to the agent.

use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    act::replace::member::LiveClaim,
    terminal::{server_list::ListedServer, server_name::ServerName},
};
use mczk_api::contract::{labels::REPLACE_VOLUME, replace_request::ReplaceRequest};

/// A request, as a change of the MultiClusterZooKeeper.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) server: ListedServer,
    /// Name of its claim.
    pub(super) claim: String,
    /// Uid of its claim.
    pub(super) uid: String,
    /// The volume that the server last reported.
    pub(super) volume: Option<String>,
    /// Merge patch of the MultiClusterZooKeeper.
    pub(super) patch: Value,
    /// Value of the annotation, before and after.
    pub(super) values: (Option<String>, String),
}

impl Request {
    /// The request to replace this claim of a server.
    pub(super) fn new(object: &DynamicObject, server: ListedServer, claim: &LiveClaim, volume: Option<String>) -> Self {
        let after = ReplaceRequest { server: server.id, claim: claim.uid.clone() }.to_string();
        Self {
            server,
            claim: claim.name.clone(),
            uid: claim.uid.clone(),
            volume,
            patch: json!({ "metadata": { "annotations": { REPLACE_VOLUME: after } } }),
            values: (object.annotations().get(REPLACE_VOLUME).cloned(), after),
        }
    }
}

/// The server that a user names.
///
/// # Errors
/// If the list has none, or several.
pub(super) fn find<'a>(servers: &'a [ListedServer], name: &ServerName) -> Result<&'a ListedServer, String> {
    let mut found = servers.iter().filter(|server| name.is(&server.cluster, &server.pod, Some(server.id)));
    match (found.next(), found.next()) {
        (Some(server), None) => Ok(server),
        (None, _) => {
            let text = |server: &ListedServer| format!("{} ({}/{})", server.id, server.cluster, server.pod);
            Err(format!("its servers are {}", servers.iter().map(text).collect::<Vec<_>>().join(", ")))
        }
        (Some(_), Some(_)) => {
            Err("pods of several clusters have this name. Name the server by its id, or as CLUSTER/POD".to_owned())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use mczk_api::zookeeper::Role;

    fn server(id: i32) -> ListedServer {
        ListedServer { id, cluster: format!("m{id}"), role: Role::Voter, pod: "zk-abc123-0".to_owned() }
    }

    #[test]
    fn a_name_must_be_of_one_server() {
        let servers = [server(1), server(2), server(3)];
        let pod = |cluster: Option<&str>| ServerName::Pod {
            cluster: cluster.map(str::to_owned),
            pod: "zk-abc123-0".to_owned(),
        };
        assert!(find(&servers, &pod(None)).unwrap_err().contains("several clusters"));
        assert_eq!(find(&servers, &pod(Some("m3"))).unwrap().id, 3);
        assert!(find(&servers, &ServerName::Id(9)).unwrap_err().contains("2 (m2/zk-abc123-0)"));
    }

    #[test]
    fn the_patch_names_the_claim() {
        let object = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zk", "annotations": { REPLACE_VOLUME: "1/u-0" } },
        });
        let claim = LiveClaim { name: "data-zk-abc123-0".to_owned(), uid: "u-1".to_owned() };
        let request = Request::new(&serde_json::from_value(object).unwrap(), server(2), &claim, None);
        let expected = json!({ "metadata": { "annotations": { REPLACE_VOLUME: "2/u-1" } } });
        assert_eq!(request.patch, expected);
        assert_eq!(request.values, (Some("1/u-0".to_owned()), "2/u-1".to_owned()));
    }
}
