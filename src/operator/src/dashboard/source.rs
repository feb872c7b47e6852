//! What the dashboard reads of the control plane: lists in pages, up to a number of ensembles and of bytes.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, ResourceExt, api::DynamicObject};
use tokio::{sync::OnceCell, time::timeout};

use super::rendered::{Ensembles, MOST_OF_ONE};
use mczk_api::{
    API_VERSION,
    contract::naming::binding_name,
    karmada::{
        cluster::Cluster,
        resource_binding::{self, ResourceBinding},
    },
};
use mczk_reading::{pages::Pages, read_only};
use mczk_rules::card::{Card, card};
use mczk_runtime::{
    failure::{During, Error, is_forbidden},
    reconcile::ObjectKey,
};

/// Most ensembles that a page shows.
const MOST_ENSEMBLES: usize = 256;
/// Most bytes of ensembles that wait for their reports. Together with a page of a list, this bounds the memory of one read.
const MOST_WAITING: usize = 8 << 20;
/// Most listed bindings for each ensemble. With more of other objects, single reads cost less.
const MOST_BINDINGS: usize = 8;
/// Time for one read of bindings: one that does not answer must not hold up all others.
const BINDING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bindings that are read at the same time.
const CONCURRENCY: usize = 4;

/// What a user does without the reports of an ensemble.
const REPORTS_HELP: &str = "States of servers are unknown. Read the ResourceBinding of the ensemble with kubectl: a \
                            version of Karmada that mczk does not support may have written it";
/// What a user does without the clusters.
const CLUSTERS_HELP: &str = "Reports may be old. Check that karmada-apiserver answers kubectl get clusters";

/// Whose rights the reads have, and what they show.
#[derive(Clone)]
pub struct PollSource {
    /// The user whose rights the reads have.
    pub client: Client,
    /// Namespace of the ensembles; `None` for all.
    pub namespace: Option<String>,
    /// True if viewers may read errors. They name objects of other namespaces.
    pub shows_errors: bool,
}

/// The member clusters, `None` without the right to read them, or why they are unknown.
type ReadClusters = Result<Option<Vec<Cluster>>, String>;
/// The member clusters, which all reads of one round share.
pub(super) type RoundClusters = OnceCell<ReadClusters>;

/// Ensembles without their reports: the namespace and the name of the binding, and the object as text.
type WaitingEnsembles = BTreeMap<ObjectKey, String>;

impl PollSource {
    /// The ensembles of a namespace, or all, with at most as many bytes of text.
    ///
    /// # Errors
    /// If the ensembles cannot be listed.
    pub(super) async fn read(
        &self,
        namespace: Option<&str>,
        clusters: &RoundClusters,
        most: usize,
    ) -> Result<Ensembles, Error> {
        let namespace = match (self.namespace.as_deref(), namespace) {
            (Some(only), Some(asked)) if only != asked => return Ok(Ensembles::default()),
            (only, asked) => asked.or(only),
        };
        let (mut waiting, total) = self.list(namespace).await?;
        let clusters = clusters.get_or_init(|| self.clusters()).await;
        let mut shown = Ensembles::with_room(most);
        let all_listed = self.list_bindings(namespace, &mut waiting, clusters, &mut shown).await?;
        let reads = waiting.into_iter().map(|((namespace, binding), object)| async move {
            let read = timeout(BINDING_TIMEOUT, read_only::binding_of(&self.client, &namespace, &binding));
            let found = if all_listed { Ok(None) } else { read.await.unwrap_or(Err(Error::Timeout(BINDING_TIMEOUT))) };
            self.card(&object, found, clusters)
        });
        let mut cards = stream::iter(reads).buffered(CONCURRENCY).boxed();
        while let Some(card) = cards.try_next().await? {
            shown.add(&card);
        }
        Ok(shown.of_total(total))
    }

    /// The first ensembles of a list, and the number of all, if the API server counts them.
    async fn list(&self, namespace: Option<&str>) -> Result<(WaitingEnsembles, Option<usize>), Error> {
        let mut pages = Pages::of(&self.client, (API_VERSION, "MultiClusterZooKeeper"), namespace);
        let (mut waiting, mut read, mut bytes) = (WaitingEnsembles::new(), 0, 0);
        while read < MOST_ENSEMBLES
            && bytes < MOST_WAITING
            && let Some(page) = pages.next().await?
        {
            read += page.len();
            for mut object in page {
                // A card does not need them.
                (object.metadata.managed_fields, object.metadata.annotations) = (None, None);
                let text = serde_json::to_string(&object).during(writing)?;
                if text.len() <= MOST_OF_ONE {
                    bytes += text.len();
                    waiting.insert((object.namespace().unwrap_or_default(), binding_name(&object.name_any())), text);
                }
            }
        }
        Ok((waiting, pages.remaining().map(|rest| read + rest)))
    }

    /// Shows the ensembles whose bindings a list has. False if the list may lack some.
    async fn list_bindings(
        &self,
        namespace: Option<&str>,
        waiting: &mut WaitingEnsembles,
        clusters: &ReadClusters,
        shown: &mut Ensembles,
    ) -> Result<bool, Error> {
        let mut pages = Pages::of(&self.client, (resource_binding::API_VERSION, "ResourceBinding"), namespace);
        let (mut read, most) = (0, waiting.len() * MOST_BINDINGS);
        while !waiting.is_empty() && read < most {
            let page = timeout(BINDING_TIMEOUT, pages.next()).await.unwrap_or(Err(Error::Timeout(BINDING_TIMEOUT)));
            let page = match page {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(true),
                Err(error) => {
                    // A user may have the right to get them alone.
                    tracing::debug!(%error, "Cannot list the ResourceBindings for the dashboard, and reads each one");
                    return Ok(false);
                }
            };
            read += page.len();
            for binding in page {
                let key = (binding.namespace().unwrap_or_default(), binding.name_any());
                let Some(object) = waiting.remove(&key) else { continue };
                let found = serde_json::to_value(binding).and_then(serde_json::from_value).map(Some);
                let found = found.during(|| format!("parsing ResourceBinding {}/{}", key.0, key.1));
                shown.add(&self.card(&object, found, clusters)?);
            }
        }
        Ok(waiting.is_empty())
    }

    /// The card of one ensemble. If its reports cannot be read, its card says so, and all others stay.
    fn card(
        &self,
        object: &str,
        binding: Result<Option<ResourceBinding>, Error>,
        clusters: &ReadClusters,
    ) -> Result<Card, Error> {
        let object: DynamicObject = serde_json::from_str(object).during(writing)?;
        let known = clusters.as_ref().ok().and_then(Option::as_deref);
        let card = match binding {
            Ok(binding) => card(&object, binding.as_ref(), known),
            Err(error) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                tracing::warn!(%error, namespace, name, "Cannot read the reports of an ensemble for the dashboard");
                card(&object, None, known).without("The reports of its clusters", &self.why(&error), REPORTS_HELP)
            }
        };
        Ok(match clusters {
            Err(why) => card.without("The state of the clusters", why, CLUSTERS_HELP),
            Ok(_) => card,
        })
    }

    /// The clusters only show which reports may be old.
    async fn clusters(&self) -> ReadClusters {
        match read_only::member_clusters(&self.client).await {
            Ok(clusters) => Ok(Some(clusters)),
            Err(error) if is_refused(&error) => Ok(None),
            Err(error) => Err(self.why(&error)),
        }
    }

    /// Why something cannot be read, as viewers may read it. Messages of the API server may name the operator's user.
    fn why(&self, error: &Error) -> String {
        match error {
            Error::Api { source: kube::Error::Api(status), .. } if !self.shows_errors => {
                format!("the API server answers {} {}", status.code, status.reason).trim_end().to_owned()
            }
            Error::Api { .. } if !self.shows_errors => "the API server does not answer".to_owned(),
            // This version cannot parse an object of the ensemble's own namespace, or time is over.
            other => other.to_string(),
        }
    }
}

fn writing() -> String {
    "writing and parsing a MultiClusterZooKeeper".to_owned()
}

/// True if the reader has no right to what it asked for.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Api { source, .. } if is_forbidden(source))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;

    async fn read(source: &PollSource, namespace: Option<&str>) -> Result<Ensembles, Error> {
        source.read(namespace, &RoundClusters::new(), 2 << 20).await
    }

    fn cards(ensembles: &Ensembles) -> Vec<Value> {
        let keys = std::iter::successors(ensembles.after(None), |(key, _)| ensembles.after(Some(*key)));
        keys.map(|(_, text)| serde_json::from_slice(text).unwrap()).collect()
    }

    /// A client of an API server with two ensembles. It refuses the clusters, and the binding of `one` cannot be parsed.
    fn partly_readable() -> Client {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let status = |code: u16| {
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": if code == 404 { "NotFound" } else { "Broken" }, "message": "User \"operator\" fails" })
            };
            let named = |name: &str| {
                multi_cluster_zookeeper::<Value>(json!({ "metadata": { "namespace": "a", "name": name } }))
            };
            let (code, body) = if path.ends_with("/multiclusterzookeepers") {
                (200, json!({ "metadata": {}, "items": [named("one"), named("two")] }))
            } else if path.ends_with("/clusters") {
                (500, status(500))
            } else if path.contains("/resourcebindings/one") {
                (
                    200,
                    json!({ "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "metadata": { "namespace": "a", "name": "one" }, "status": { "aggregatedStatus": 7 } }),
                )
            } else {
                (404, status(404))
            };
            let body = kube::client::Body::from(serde_json::to_vec(&body).unwrap());
            std::future::ready(Ok::<_, std::convert::Infallible>(
                http::Response::builder().status(code).body(body).unwrap(),
            ))
        });
        Client::new(service, "n")
    }

    #[tokio::test]
    async fn one_unreadable_object_concerns_its_own_card_alone() {
        let source = PollSource { client: partly_readable(), namespace: None, shows_errors: false };
        let cards = json!(cards(&read(&source, None).await.unwrap()));
        let messages = |index: usize| {
            let findings = cards[index]["findings"].as_array().unwrap();
            findings.iter().map(|finding| finding["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let of = |index: usize, text: &str| messages(index).into_iter().find(|message| message.starts_with(text));
        let reports = of(0, "The reports of its clusters cannot be read: ").unwrap();
        assert!(reports.contains("parsing ResourceBinding a/one"), "{reports}");
        assert_eq!(of(1, "The reports"), None);
        let summary = cards[0]["summary"].as_str().unwrap();
        assert!(summary.contains("The reports of its clusters cannot be read."), "{summary}");
        for index in [0, 1] {
            // Both depend on the clusters. The operator's user is no business of viewers.
            let clusters = of(index, "The state of the clusters cannot be read: ").unwrap();
            assert!(clusters.ends_with("the API server answers 500 Broken"), "{clusters}");
            assert_eq!(cards[index]["waits"], true);
        }
    }

    /// Paths with their queries, and the bytes of the answers.
    type AnsweredPaths = Arc<Mutex<Vec<(String, usize)>>>;

    /// An API server with 10,000 ensembles in 100 namespaces, with a binding and three others for each, and all requests.
    fn many() -> (Client, AnsweredPaths) {
        let asked = AnsweredPaths::default();
        let all = asked.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            let parameter = |name: &str| {
                let value = query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
                value.map(|value| value.parse::<usize>().unwrap())
            };
            let namespace = path.split_once("/namespaces/").map(|(_, rest)| rest.split('/').next().unwrap().to_owned());
            let per = if path.ends_with("/resourcebindings") { 4 } else { 1 };
            let number = match namespace {
                _ if path.ends_with("/clusters") => 0,
                Some(_) => 100 * per,
                None => 10_000 * per,
            };
            let (from, limit) = (parameter("continue").unwrap_or(0), parameter("limit").unwrap_or(number));
            let object = |at: usize| {
                let namespace = namespace.clone().unwrap_or_else(|| format!("n{:02}", at / (100 * per)));
                let name = format!("zk-{}", at / per % 100);
                let managed = json!([{ "manager": "m", "fieldsV1": { "f:spec": "x".repeat(4000) } }]);
                if per == 1 {
                    multi_cluster_zookeeper::<Value>(
                        json!({ "metadata": { "namespace": namespace, "name": name, "managedFields": managed } }),
                    )
                } else {
                    let name = if at.is_multiple_of(4) { binding_name(&name) } else { format!("{name}-{}", at % 4) };
                    json!({ "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                        "metadata": { "namespace": namespace, "name": name, "managedFields": managed } })
                }
            };
            let until = (from + limit).min(number);
            let items: Vec<Value> = (from..until).map(object).collect();
            let rest = if until < number {
                json!({ "continue": until.to_string(), "remainingItemCount": number - until })
            } else {
                json!({})
            };
            let text = serde_json::to_vec(&json!({ "metadata": rest, "items": items })).unwrap();
            all.lock().unwrap().push((format!("{path}?{query}"), text.len()));
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(text))))
        });
        (Client::new(service, "n"), asked)
    }

    #[tokio::test]
    async fn a_read_of_many_ensembles_is_bounded() {
        let (client, asked) = many();
        let source = PollSource { client, namespace: None, shows_errors: false };
        let all = read(&source, None).await.unwrap();
        assert_eq!(cards(&all).len(), MOST_ENSEMBLES);
        let bound = format!("Only {MOST_ENSEMBLES} of 10000 ensembles are shown: name a namespace, or run mczk status");
        assert_eq!(all.bound, Some(bound));
        assert!(cards(&all).iter().all(|card| !card.to_string().contains("cannot be read")));
        let requests = std::mem::take(&mut *asked.lock().unwrap());
        assert!(requests.len() <= 40, "{} requests, and no read of single bindings", requests.len());
        assert!(requests.iter().all(|(path, bytes)| path.contains("limit=") && *bytes < 1 << 20), "{requests:?}");
        // A namespace beyond those that the page of all shows.
        let one = read(&source, Some("n99")).await.unwrap();
        assert_eq!((cards(&one).len(), one.bound.as_ref()), (100, None));
        assert!(cards(&one).iter().all(|card| card["namespace"] == "n99"));
    }

    #[tokio::test]
    async fn a_command_for_one_namespace_reads_no_other() {
        let (client, asked) = many();
        let source = PollSource { client, namespace: Some("n01".to_owned()), shows_errors: true };
        assert_eq!(cards(&read(&source, None).await.unwrap()).len(), 100);
        assert!(asked.lock().unwrap().iter().all(|(path, _)| path.contains("/clusters") || path.contains("/n01/")));
        asked.lock().unwrap().clear();
        assert_eq!(cards(&read(&source, Some("n02")).await.unwrap()).len(), 0);
        assert!(asked.lock().unwrap().is_empty());
    }

    /// Large objects of one user do not keep the ensembles of others from the page, nor in memory.
    #[tokio::test]
    async fn a_large_object_is_left_out() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| {
            let named = |name: &str, bytes: usize| {
                let template = json!({ "image": "i".repeat(bytes) });
                let annotations = json!({ "a": "x".repeat(300 << 10) });
                multi_cluster_zookeeper::<Value>(json!({
                    "metadata": { "namespace": "a", "name": name, "annotations": annotations }, "spec": { "template": template },
                }))
            };
            let objects = request.uri().path().ends_with("/multiclusterzookeepers");
            let items = if objects { vec![named("large", 300 << 10), named("small", 10)] } else { vec![] };
            let text = serde_json::to_vec(&json!({ "metadata": {}, "items": items })).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(text))))
        });
        let source = PollSource { client: Client::new(service, "n"), namespace: None, shows_errors: false };
        let all = read(&source, None).await.unwrap();
        let [small] = &cards(&all)[..] else { panic!("one card") };
        assert_eq!(small["name"], "small");
        assert_eq!(all.bound.unwrap(), "Only 1 of 2 ensembles are shown: name a namespace, or run mczk status");
    }
}
