//! The incarnations that have servers or volumes in a member cluster, by the labels of the agent's objects.

use std::fmt::Debug;

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

use super::reader::BoundedReader;
use crate::doctor::observed::{IncarnationKey, Incarnations, Read};
use mczk_api::contract::labels::{
    ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, SERVERS_REMOVED,
};

/// Most objects of one answer.
const PER_PAGE: u32 = 500;

/// Servers and volumes of each incarnation. Only their numbers are kept: a cluster may have thousands of ensembles.
pub(super) async fn incarnations(client: &Client, cluster: &str, reader: &BoundedReader) -> Read<Incarnations> {
    let mut found = Incarnations::new();
    let sets: Api<StatefulSet> = Api::all(client.clone());
    read_pages(&sets, &format!("StatefulSets of cluster {cluster}"), reader, |set| {
        let replicas = set.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if let Some(key) = IncarnationKey::of(&set.metadata) {
            found.entry(key).or_default().servers += usize::try_from(replicas).unwrap_or(0);
        }
    })
    .await?;
    let claims: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::all(client.clone());
    read_pages(&claims, &format!("claims of cluster {cluster}"), reader, |claim| {
        let is_kept = claim.annotations().contains_key(SERVERS_REMOVED);
        if let Some(key) = IncarnationKey::of(&claim.metadata).filter(|_| !is_kept) {
            found.entry(key).or_default().volumes += 1;
        }
    })
    .await?;
    Ok(found)
}

/// Reads the objects of agents of one kind, page by page, and passes each to `count`.
async fn read_pages<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    what: &str,
    reader: &BoundedReader,
    mut count: impl FnMut(K),
) -> Read<()> {
    let of_agents = format!("{ENSEMBLE_LABEL},{INCARNATION_LABEL},{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}");
    let mut page = ListParams::default().labels(&of_agents).limit(PER_PAGE);
    loop {
        let list = reader.read(what, api.list(&page)).await?;
        list.items.into_iter().for_each(&mut count);
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::doctor::{healthy::incarnation, observed::IncarnationObjects};

    fn set(ensemble: &str, replicas: Option<i32>) -> Value {
        json!({
            "metadata": { "name": ensemble, "namespace": "n", "labels": labels(ensemble) },
            "spec": { "replicas": replicas, "selector": {}, "serviceName": "s", "template": {} },
        })
    }

    fn claim(ensemble: &str, annotations: &Value) -> Value {
        json!({ "metadata": { "name": ensemble, "namespace": "n", "labels": labels(ensemble), "annotations": annotations } })
    }

    fn labels(ensemble: &str) -> Value {
        json!({ ENSEMBLE_LABEL: ensemble, INCARNATION_LABEL: "abc", MANAGED_BY_LABEL: MANAGED_BY_AGENT })
    }

    /// A cluster whose API server has one object in each answer, and refuses requests whose path has this part.
    fn cluster(refused: Option<&'static str>) -> Client {
        let sets = vec![set("zk", Some(2)), set("zk", None), set("stopped", Some(0))];
        let claims = vec![
            claim("zk", &json!({})),
            claim("alone", &json!({})),
            claim("kept", &json!({ SERVERS_REMOVED: "true" })),
        ];
        let service = service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            assert!(uri.contains(MANAGED_BY_AGENT) && uri.contains("limit=500"), "{uri}");
            let all = if uri.contains("/statefulsets") { &sets } else { &claims };
            let from = uri.split(['?', '&']).find_map(|part| part.strip_prefix("continue="));
            let from: usize = from.map_or(0, |from| from.parse().unwrap());
            let more = if from + 1 < all.len() { json!({ "continue": (from + 1).to_string() }) } else { json!({}) };
            let message = refused.map(|refused| format!("{refused} is forbidden"));
            let (code, answer) = match message.filter(|_| refused.is_some_and(|refused| uri.contains(refused))) {
                Some(message) => (403, json!({ "status": "Failure", "code": 403, "message": message })),
                None => (200, json!({ "metadata": more, "items": [all[from]] })),
            };
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(Response::builder().status(code).body(body).unwrap()))
        });
        Client::new(service, "n")
    }

    async fn read(refused: Option<&'static str>) -> Read<Incarnations> {
        incarnations(&cluster(refused), "m1", &BoundedReader::new(Duration::from_secs(5))).await
    }

    #[tokio::test]
    async fn servers_and_volumes_are_counted_over_all_pages() {
        let objects =
            |ensemble, servers, volumes| (incarnation("n", ensemble, "abc"), IncarnationObjects { servers, volumes });
        // A StatefulSet without replicas has one. A claim whose servers an agent removed is no sign of an ensemble.
        let expected = [objects("alone", 0, 1), objects("stopped", 0, 0), objects("zk", 3, 1)];
        assert_eq!(read(None).await, Ok(Incarnations::from(expected)));
    }

    #[rstest]
    #[case("statefulsets")]
    #[case("persistentvolumeclaims")]
    #[tokio::test]
    async fn a_missing_right_is_stated(#[case] refused: &'static str) {
        assert_eq!(read(Some(refused)).await, Err(format!("{refused} is forbidden")));
    }
}
