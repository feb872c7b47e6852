//! Writes the objects that differ from the plan, and nothing else.
//!
//! Every write carries the resource version on which the plan rests, and every delete the uid too.

use std::time::Instant;

use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::{
    certificates,
    context::{Context, MOST_WRITES},
};
use mczk_api::{
    API_VERSION,
    contract::{
        labels::OPERATOR_FINALIZER,
        naming::{binding_name, policy_name},
        tombstone::{self, Tombstone},
    },
    karmada::{
        DELETION_PROTECTION, PROTECTION_ALWAYS,
        policy::{self, OverridePolicy, OverridePolicySpec},
        resource_binding,
    },
};
use mczk_reading::{certificate_secrets, kinds, operator_identity::FIELD_MANAGER};
use mczk_rules::rollout::{
    live::Live,
    object_change::{ObjectChange, altered_part, change, changes_protection},
    override_rules,
    plan::{Finalizer, ObjectWrite, Observed, Plan},
    services::MCS_API_VERSION,
};
use mczk_runtime::{
    failure::{During, Error, is_namespace_terminating, is_not_found},
    reconcile::ObjectKey,
};

/// Category of the failure of an object that another writer changes each time.
const CONTESTED: &str = "contested";

/// Adds or removes the finalizer. True if it did: the object has then changed and must be observed again.
pub(super) async fn finalizer(observed: &Observed, desired: Finalizer, context: &Context) -> Result<bool, Error> {
    let object = &observed.object;
    let mut finalizers = object.finalizers().to_vec();
    match desired {
        Finalizer::Keep => return Ok(false),
        Finalizer::Add => finalizers.push(OPERATOR_FINALIZER.to_owned()),
        Finalizer::Remove => finalizers.retain(|f| f != OPERATOR_FINALIZER),
    }
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &kinds::multiclusterzookeeper());
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.resource_version() } });
    api.patch(&object.name_any(), &field_manager(), &Patch::Merge(&patch))
        .await
        .during(|| format!("{desired:?} finalizer of MultiClusterZooKeeper {namespace}/{}", object.name_any()))?;
    context.metrics.wrote("MultiClusterZooKeeper", "patch");
    Ok(true)
}

/// Writes the term of this operator into the OverridePolicy. The object has then changed and must be observed again.
pub(super) async fn claim(observed: &Observed, claim: &OverridePolicy, context: &Context) -> Result<(), Error> {
    let owned = Owned { observed, context };
    let live = observed.overrides.as_ref().map(Live::whole);
    owned.write(policy::API_VERSION, "OverridePolicy", &ObjectWrite::Apply(claim), live).await.map(drop)
}

/// Writes the owned objects. `reported` is the arrival of the report on which the plan rests.
///
/// What the API server refuses, or another writer contests, stops only the writes that rest on it.
pub(super) async fn apply(
    observed: &Observed,
    plan: &Plan,
    reported: Option<Instant>,
    context: &Context,
) -> Result<(), Error> {
    let owned = Owned { observed, context };
    // Before the template that names it. But a certificate that cannot be created must not stop a running rollout.
    let first = observed.template.is_none();
    if let Some(make) = plan.certificate.as_ref().filter(|_| first) {
        certificates::make(observed, make, context).await?;
    }
    // Nothing without it: what follows may begin another incarnation, or delete the objects that record its clusters.
    if let Some(tombstone) = &plan.tombstone {
        owned.tombstone(tombstone).await?;
    }
    let mut lasting = Lasting::default();
    // The policies before the template: Karmada must not propagate it before the OverridePolicy holds every cluster at 0
    // servers.
    let is_held = lasting.keep(owned.overrides(plan, reported).await)?;
    let is_placed = is_held && lasting.keep(owned.policy(plan).await)?;
    // Without its OverridePolicy an incarnation has not begun, and exports nothing. Else what the API server refuses of one
    // name stops no server.
    let mut services = plan.services.iter().filter(|_| is_held);
    for (key, desired) in services.by_ref() {
        let written = owned.service(key, desired).await;
        // The next one may hang too, and end the pass. So the others come last.
        let is_last = written.as_ref().err().is_some_and(hangs);
        lasting.keep(written)?;
        if is_last {
            break;
        }
    }
    // Before the template is deleted: otherwise the API server refuses the garbage collector, which retries only after
    // minutes.
    let is_free =
        is_placed && (plan.protect_binding != Some(false) || lasting.keep(owned.protect_binding(false).await)?);
    let is_written = is_free && lasting.keep(owned.template(plan).await)?;
    // It changes no server, and keeps the binding of the observed template alone.
    if plan.protect_binding == Some(true) {
        lasting.keep(owned.protect_binding(true).await)?;
    }
    // Karmada would schedule another template, or for another policy, than the plan wants.
    if let Some(at) = plan.reschedule.filter(|_| is_written) {
        lasting.keep(owned.reschedule(at).await)?;
    }
    // A new Secret changes nothing until the objects above name it.
    if let Some(make) = plan.certificate.as_ref().filter(|_| !first) {
        lasting.0.extend(certificates::make(observed, make, context).await.err());
    }
    for (key, desired) in services {
        lasting.keep(owned.service(key, desired).await)?;
    }
    lasting.result()
}

/// True if the same write fails again until someone corrects what refuses or changes the object.
pub(super) fn lasts(error: &Error) -> bool {
    error.write_refusal().is_some() || error.category() == CONTESTED
}

/// True if nothing answered the API server: each such write takes half a minute.
pub(super) fn hangs(error: &Error) -> bool {
    error.refusal().is_none() && error.write_refusal().is_some()
}

/// The failures that stop no other write but those that rest on the failed one.
#[derive(Default)]
struct Lasting(Vec<Error>);

impl Lasting {
    /// True if the write succeeded. Another failure than a lasting one ends the pass: the next one may succeed. What lasts is
    /// reported with it. So does the second write that hangs.
    fn keep(&mut self, written: Result<(), Error>) -> Result<bool, Error> {
        match written {
            Err(error) if lasts(&error) && !(hangs(&error) && self.0.iter().any(hangs)) => {
                self.0.push(error);
                Ok(false)
            }
            Err(error) if !self.0.is_empty() => {
                self.0.push(error);
                std::mem::take(self).result().map(|()| true)
            }
            other => other.map(|()| true),
        }
    }

    /// All of them as one failure: its text stands in a condition.
    fn result(mut self) -> Result<(), Error> {
        let messages: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let Some(last) = self.0.pop() else { return Ok(()) };
        if self.0.is_empty() {
            return Err(last);
        }
        Err(Error::Other { category: last.category(), message: messages.join("; ") })
    }
}

fn field_manager() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// True if the plan gives a cluster a spec hash that it did not have.
fn begins_cluster(observed: &Observed, desired: &OverridePolicySpec) -> bool {
    let before = observed.overrides.as_ref().map(|p| override_rules::read(&p.spec)).unwrap_or_default();
    override_rules::read(desired)
        .cluster_specs
        .iter()
        .any(|(cluster, spec)| before.cluster_specs.get(cluster).map(|p| &p.spec_hash) != Some(&spec.spec_hash))
}

fn value<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).during(|| "serializing an object".to_owned())
}

/// The objects that the operator owns for one MultiClusterZooKeeper.
struct Owned<'a> {
    observed: &'a Observed,
    context: &'a Context,
}

impl Owned<'_> {
    fn key(&self) -> ObjectKey {
        let object = &self.observed.object;
        (object.namespace().unwrap_or_default(), object.name_any())
    }

    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let namespace = self.observed.object.namespace().unwrap_or_default();
        kinds::api(&self.context.client, api_version, kind, &namespace)
    }

    async fn overrides(&self, plan: &Plan, reported: Option<Instant>) -> Result<(), Error> {
        let live = self.observed.overrides.as_ref().map(Live::whole);
        let written = self.write(policy::API_VERSION, "OverridePolicy", &plan.overrides, live).await?;
        if let (Some(reported), ObjectWrite::Apply(desired)) = (reported.filter(|_| written), &plan.overrides)
            && begins_cluster(self.observed, &desired.spec)
        {
            self.context.metrics.transition(reported.elapsed());
        }
        Ok(())
    }

    async fn policy(&self, plan: &Plan) -> Result<(), Error> {
        let live = self.observed.policy.as_ref().map(Live::whole);
        self.write(policy::API_VERSION, "PropagationPolicy", &plan.policy, live).await.map(drop)
    }

    async fn template(&self, plan: &Plan) -> Result<(), Error> {
        let live = self.observed.template.as_ref().map(Live::whole);
        self.write(API_VERSION, "ZooKeeper", &plan.template, live).await.map(drop)
    }

    /// Creates, replaces or deletes an object: the observed version of it, or one that does not exist. True if it changed.
    async fn write<T: Serialize>(
        &self,
        api_version: &str,
        kind: &'static str,
        desired: &ObjectWrite<T>,
        live: Option<&Value>,
    ) -> Result<bool, Error> {
        let (next, exists) = match change(desired, live).during(|| format!("serializing {kind}"))? {
            None => return Ok(false),
            Some(ObjectChange::Delete(meta)) => return self.delete(api_version, kind, *meta).await,
            Some(ObjectChange::Create(next)) => (next, false),
            Some(ObjectChange::Update(next)) => (next, true),
        };
        let next: DynamicObject = serde_json::from_value(next).during(|| format!("serializing {kind}"))?;
        let (api, name) = (self.api(api_version, kind), next.name_any());
        let key = self.key();
        let (written_object, before) = (format!("{kind} {name}"), next.metadata.resource_version.as_deref());
        if !self.context.may_write(&key, &written_object, before) {
            return Err(contested(kind, &name, live, self.context.is_altered(&key, &written_object)));
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, written) = if exists {
            ("update", api.replace(&name, &params, &next).await.during(|| format!("updating {kind} {name}"))?)
        } else {
            // The API server refuses it if another object of that name was created meanwhile.
            ("create", api.create(&params, &next).await.during(|| format!("creating {kind} {name}"))?)
        };
        let stored = value(&written)?;
        let altered = change(desired, Some(&stored)).during(|| format!("serializing {kind}"))?.is_some();
        self.context.wrote(&key, written_object, written.metadata.resource_version.clone(), altered);
        let own = self.observed.object.name_any();
        // A tombstone must not wait for a webhook.
        let is_acted_on = name == own || name == policy_name(&own);
        if altered
            && is_acted_on
            && let Some(part) = altered_part(kind, desired, &stored).during(|| format!("serializing {kind}"))?
        {
            return Err(altered_at_once(kind, &name, part));
        }
        if written.metadata.resource_version == next.metadata.resource_version {
            // The API server restored what differed: a default that this version does not know.
            debug!(kind, name, namespace = self.observed.object.namespace(), "Object unchanged by the update");
            return Ok(false);
        }
        info!(kind, name, verb, namespace = self.observed.object.namespace(), "Object written");
        self.context.metrics.wrote(kind, verb);
        Ok(true)
    }

    /// Removes Karmada's deletion protection and deletes, exactly the observed object. True if it did.
    async fn delete(&self, api_version: &str, kind: &'static str, meta: ObjectMeta) -> Result<bool, Error> {
        let name = meta.name.clone().unwrap_or_default();
        let api = self.api(api_version, kind);
        let mut version = meta.resource_version.clone();
        if meta.labels.as_ref().is_some_and(|l| l.contains_key(DELETION_PROTECTION)) {
            let patch = json!({ "metadata": { "labels": { DELETION_PROTECTION: null }, "resourceVersion": version } });
            let unprotected = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .during(|| format!("removing the deletion protection of {kind} {name}"))?;
            version = unprotected.metadata.resource_version;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: meta.uid.clone(), resource_version: version }),
            ..DeleteParams::background()
        };
        match api.delete(&name, &params).await {
            Err(error) if is_not_found(&error) => Ok(()),
            other => other.map(drop).during(|| format!("deleting {kind} {name}")),
        }?;
        info!(kind, name, namespace = self.observed.object.namespace(), "Object deleted");
        self.context.metrics.wrote(kind, "delete");
        Ok(true)
    }

    async fn service(&self, key: &str, desired: &ObjectWrite<Value>) -> Result<(), Error> {
        let (version, kind) = match key.split_once('/').map(|(kind, _)| kind) {
            Some("ServiceExport") => (MCS_API_VERSION, "ServiceExport"),
            Some("ServiceImport") => (MCS_API_VERSION, "ServiceImport"),
            Some("OverridePolicy") => (policy::API_VERSION, "OverridePolicy"),
            Some("ZooKeeper") => (API_VERSION, "ZooKeeper"),
            _ => (policy::API_VERSION, "PropagationPolicy"),
        };
        self.write(version, kind, desired, self.observed.services.get(key)).await.map(drop)
    }

    /// Writes the tombstone of an incarnation for unreachable clusters: its policy first, since the tombstone counts
    /// as written once its Secret exists. Both names contain the incarnation, so no foreign object has them by chance.
    async fn tombstone(&self, tombstone: &Tombstone) -> Result<(), Error> {
        let namespace = &tombstone.namespace;
        let name = tombstone.policy().metadata.name.unwrap_or_default();
        let live = self.api(policy::API_VERSION, "PropagationPolicy").get_opt(&name).await;
        let live = live.during(|| format!("reading PropagationPolicy {name}"))?.as_ref().map(value).transpose()?;
        // A former pass may have named clusters whose Works are gone since.
        let named = live.as_ref().and_then(|live| live.pointer("/spec/placement/clusterAffinity/clusterNames"));
        let named = named.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let clusters = named.chain(tombstone.clusters.iter().cloned()).collect();
        let policy = Tombstone { clusters, ..tombstone.clone() }.policy();
        match self.write(policy::API_VERSION, "PropagationPolicy", &ObjectWrite::Apply(policy), live.as_ref()).await {
            Err(Error::Api { source, .. }) if is_namespace_terminating(&source) => {
                // Karmada deletes the namespace in member clusters too, with everything in it.
                warn!(namespace, name, "No tombstone for unreachable clusters: the namespace is being deleted");
                return Ok(());
            }
            written => drop(written?),
        }
        let secrets: Api<Secret> = Api::namespaced(self.context.client.clone(), namespace);
        let secret = Secret { metadata: tombstone.secret(), immutable: Some(true), ..Secret::default() };
        let name = secret.metadata.name.clone().unwrap_or_default();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match secrets.create(&params, &secret).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = secrets.get_metadata(&name).await.during(|| format!("reading Secret {name}"))?;
                return no_tombstone(&found.metadata, tombstone).map_or(Ok(()), Err);
            }
            other => {
                drop(other.map_err(|error| {
                    certificate_secrets::refused(namespace, &format!("creating Secret {name}"), error)
                })?);
            }
        }
        info!(secret = name, namespace, clusters = ?tombstone.clusters, "Tombstone created: clusters that come back remove the incarnation");
        self.context.metrics.wrote("Secret", "create");
        Ok(())
    }

    /// Sets or removes Karmada's deletion protection of the binding. With it, the deletion of a namespace waits for the
    /// operator.
    async fn protect_binding(&self, protect: bool) -> Result<(), Error> {
        if !changes_protection(self.observed, protect) {
            return Ok(());
        }
        let label = protect.then_some(PROTECTION_ALWAYS);
        self.patch_binding(&json!({ DELETION_PROTECTION: label }), &json!({}), "protecting").await
    }

    /// Asks Karmada's scheduler for a new schedule, as a `WorkloadRebalancer` does.
    async fn reschedule(&self, at: Timestamp) -> Result<(), Error> {
        info!(
            namespace = self.observed.object.namespace(),
            name = self.observed.object.name_any(),
            "Asking Karmada to schedule again"
        );
        self.patch_binding(&json!({}), &json!({ "rescheduleTriggeredAt": Time(at) }), "rescheduling").await?;
        self.context.asked(&self.key());
        Ok(())
    }

    /// Patches the observed version of the binding.
    async fn patch_binding(&self, labels: &Value, spec: &Value, action: &str) -> Result<(), Error> {
        let Some(binding) = &self.observed.binding else { return Ok(()) };
        let version = &binding.metadata.resource_version;
        let patch = json!({ "metadata": { "labels": labels, "resourceVersion": version }, "spec": spec });
        let name = binding_name(&self.observed.object.name_any());
        self.api(resource_binding::API_VERSION, "ResourceBinding")
            .patch(&name, &field_manager(), &Patch::Merge(&patch))
            .await
            .during(|| format!("{action} ResourceBinding {name}"))?;
        self.context.metrics.wrote("ResourceBinding", "patch");
        Ok(())
    }
}

/// The operator would write an object for ever, as fast as another writer changes it, or each time an admission webhook alters what
/// it writes.
fn contested(kind: &str, name: &str, live: Option<&Value>, altered: bool) -> Error {
    let managers = live.and_then(|live| live.pointer("/metadata/managedFields")).and_then(Value::as_array);
    let others = managers.into_iter().flatten().filter(|entry| entry["manager"] != FIELD_MANAGER);
    let newest = others.max_by_key(|entry| entry["time"].as_str()).and_then(|entry| entry["manager"].as_str());
    let by = if altered {
        ": an admission webhook or policy of the control plane alters each write".to_owned()
    } else {
        newest.map(|manager| format!(": the last other writer is {manager}")).unwrap_or_default()
    };
    let message = format!(
        "{kind} {name} is changed each time after the operator has written it, {MOST_WRITES} times in a minute{by}. Stop what changes it"
    );
    Error::Other { category: CONTESTED, message }
}

/// Karmada or agents would act by what the operator did not write.
fn altered_at_once(kind: &str, name: &str, part: &str) -> Error {
    let message = format!(
        "the control plane stored another {part} of {kind} {name} than the operator wrote: an admission webhook or policy changes it, \
         or its definition is of another version. Let the webhook leave {kind} {name} as it is, or run mczk register --only crds"
    );
    Error::Other { category: CONTESTED, message }
}

/// Why a Secret with the name of a tombstone is none. Without this failure the operator would create it again without end.
fn no_tombstone(found: &ObjectMeta, tombstone: &Tombstone) -> Option<Error> {
    let name = found.name.as_deref().unwrap_or_default();
    let message = format!(
        "creating Secret {name}: a Secret of that name exists whose labels or annotation are not those of a tombstone: run kubectl --namespace {} delete secret {name}",
        tombstone.namespace
    );
    tombstone::read(found, &tombstone.name).is_none().then_some(Error::Other { category: "tombstone", message })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::{Arc, Mutex},
    };

    use http::{Method, Request, Response};
    use kube::{Client, client::Body, runtime::events::Reporter};
    use prometheus_client::registry::Registry;
    use rstest::rstest;
    use tower::service_fn;

    use super::*;
    use crate::{
        controller::{Metrics, Options, tests::alone},
        fixtures::{multi_cluster_zookeeper, zookeeper},
    };
    use mczk_api::{contract::certificate_names::Holds, karmada::policy::PropagationPolicy};
    use mczk_rules::rollout::certificates::Make;
    use mczk_runtime::{election::Leadership, event_queue};

    /// The words of an API server that refuses a write.
    const WORDS: &str = "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: not before the audit";

    /// An API server that refuses one of the writes below, and all writes that it got.
    fn api_server(refused: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
        let writes = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&writes);
        let service = service_fn(move |request: Request<Body>| {
            let all = Arc::clone(&all);
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let sent = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                let failure = |code: u16, reason: &str, message: &str| {
                    (code, json!({ "status": "Failure", "message": message, "reason": reason, "code": code }))
                };
                let (code, body): (u16, Value) = if method == Method::GET {
                    let list = json!({ "metadata": {}, "items": [] });
                    if path.ends_with("/secrets") { (200, list) } else { failure(404, "NotFound", "") }
                } else {
                    let object: Value = if sent.is_empty() { json!({}) } else { serde_json::from_slice(&sent)? };
                    let target = path.rsplit("/n/").next().unwrap_or_default();
                    let write = match object["metadata"]["name"].as_str() {
                        Some(name) if method == Method::POST => format!("{target}/{name}"),
                        _ if object["spec"]["rescheduleTriggeredAt"].is_string() => RESCHEDULED.to_owned(),
                        _ => target.to_owned(),
                    };
                    let (is_refused, hangs) = (write == refused, write.starts_with(EXPORTS) && refused == EXPORTS);
                    all.lock().unwrap().push(write);
                    match () {
                        () if hangs => failure(504, "Timeout", "no answer in time"),
                        () if is_refused => failure(422, "Invalid", WORDS),
                        () => (200, object),
                    }
                };
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        (Client::new(service, "n"), writes)
    }

    fn context(client: Client) -> Context {
        let reporter = Reporter { controller: "test".into(), instance: None };
        let (events, _publisher) = event_queue::start(client.clone(), reporter);
        let options = Options { server_image: String::new() };
        Context::new(client, Leadership::without_election(), options, Metrics::new(&mut Registry::default()), events)
    }

    fn tombstone() -> Tombstone {
        let clusters = BTreeSet::from(["m3".to_owned()]);
        Tombstone { namespace: "n".to_owned(), name: "zk".to_owned(), incarnation: "abc123".to_owned(), clusters }
    }

    /// An ensemble with a template and its binding, but without policies.
    fn observed() -> Observed {
        let mut binding = resource_binding::ResourceBinding::default();
        binding.metadata.resource_version = Some("7".to_owned());
        binding.spec.resource.uid = Some("u".to_owned());
        Observed {
            template: Some(zookeeper(json!({ "metadata": { "resourceVersion": "6" } }))),
            binding: Some(binding),
            ..alone(multi_cluster_zookeeper(json!({})))
        }
    }

    /// A plan with a write of each object.
    fn plan() -> Plan {
        let mut policy: PropagationPolicy = tombstone().policy();
        policy.metadata.name = Some("mczk-zk".to_owned());
        let spec = OverridePolicySpec { resource_selectors: Vec::new(), override_rules: Vec::new() };
        let export = json!({
            "apiVersion": MCS_API_VERSION, "kind": "ServiceExport", "metadata": { "name": "zk", "namespace": "n" },
        });
        let make = Make {
            holds: Holds::Authority,
            name: "zk-abc123-quorum".to_owned(),
            incarnation: "abc123".to_owned(),
            number: 1,
            authority: None,
            requested: None,
        };
        let mut plan = Plan::nothing(observed().object.status.unwrap_or_default());
        plan.tombstone = Some(tombstone());
        plan.overrides = ObjectWrite::Apply(OverridePolicy::new("mczk-zk", spec));
        plan.policy = ObjectWrite::Apply(policy);
        plan.services = BTreeMap::from([("ServiceExport/zk".to_owned(), ObjectWrite::Apply(export))]);
        plan.template = ObjectWrite::Apply(zookeeper(json!({ "spec": { "replicas": 3 } })));
        plan.protect_binding = Some(true);
        plan.reschedule = Some(Timestamp::UNIX_EPOCH);
        plan.certificate = Some(make);
        plan
    }

    const TOMBSTONE_POLICY: &str = "propagationpolicies/mczk-zk.abc123.tombstone";
    const TOMBSTONE: &str = "secrets/zk-abc123-tombstone";
    const OVERRIDES: &str = "overridepolicies/mczk-zk";
    const POLICY: &str = "propagationpolicies/mczk-zk";
    const EXPORT: &str = "serviceexports/zk";
    const TEMPLATE: &str = "zookeepers/zk";
    const PROTECTED: &str = "resourcebindings/zk-zookeeper";
    const RESCHEDULED: &str = "the schedule";
    const CERTIFICATE: &str = "secrets/zk-abc123-quorum";
    const EXPORTS: &str = "serviceexports/";
    /// All writes of the plan, in their order.
    const ALL: &[&str] =
        &[TOMBSTONE_POLICY, TOMBSTONE, OVERRIDES, POLICY, EXPORT, TEMPLATE, PROTECTED, RESCHEDULED, CERTIFICATE];

    fn without(left_out: &[&str]) -> Vec<&'static str> {
        ALL.iter().copied().filter(|write| !left_out.contains(write)).collect()
    }

    /// A refused write stops those that rest on it, and no other. The failure has the words and the object.
    #[rstest]
    #[case::of_no_write("", "", &[])]
    #[case::policy_of_tombstone(TOMBSTONE_POLICY, "creating PropagationPolicy mczk-zk.abc123.tombstone", &ALL[1..])]
    #[case::tombstone(TOMBSTONE, "creating Secret zk-abc123-tombstone", &ALL[2..])]
    #[case::overrides(OVERRIDES, "creating OverridePolicy mczk-zk", &[POLICY, EXPORT, TEMPLATE, RESCHEDULED])]
    #[case::policy(POLICY, "creating PropagationPolicy mczk-zk", &[TEMPLATE, RESCHEDULED])]
    #[case::export(EXPORT, "creating ServiceExport zk", &[])]
    #[case::template(TEMPLATE, "updating ZooKeeper zk", &[RESCHEDULED])]
    #[case::protection(PROTECTED, "protecting ResourceBinding zk-zookeeper", &[])]
    #[case::schedule(RESCHEDULED, "rescheduling ResourceBinding zk-zookeeper", &[])]
    #[case::certificate(CERTIFICATE, "creating Secret zk-abc123-quorum", &[])]
    #[tokio::test]
    async fn a_refusal_stops_what_rests_on_it(
        #[case] refused: &'static str,
        #[case] object: &str,
        #[case] left_out: &[&str],
    ) {
        let (client, writes) = api_server(refused);
        let failure = apply(&observed(), &plan(), None, &context(client)).await.err().map(|error| error.to_string());
        assert_eq!(*writes.lock().unwrap(), without(left_out));
        let is_named = |failure: &String| failure.contains(object) && failure.contains(WORDS);
        assert_eq!(failure.as_ref().is_some_and(is_named), !refused.is_empty(), "{failure:?}");
    }

    /// A webhook for them does not answer. The template comes after them, and a second one that hangs would end the pass.
    #[tokio::test]
    async fn exports_that_hang_stop_no_server() {
        let (client, writes) = api_server(EXPORTS);
        let mut plan = plan();
        let another =
            plan.services.first_key_value().map(|(key, export)| (format!("{key}-2"), export.clone())).unwrap();
        plan.services.extend([another]);
        let failure = apply(&observed(), &plan, None, &context(client)).await.unwrap_err().to_string();
        assert!(failure.contains("no answer in time"), "{failure}");
        assert_eq!(*writes.lock().unwrap(), [ALL, &[EXPORT]].concat(), "the others come last");
    }

    /// Each takes half a minute, and the words of a pass that takes too long are lost.
    #[test]
    fn the_second_write_that_hangs_ends_the_pass() {
        let failed = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            Err(Error::Api { action: "writing".to_owned(), source: kube::Error::Api(Box::new(status)) })
        };
        let mut lasting = Lasting::default();
        assert!(!lasting.keep(failed(504, "first timeout")).unwrap());
        assert!(!lasting.keep(failed(422, "invalid")).unwrap());
        let said = lasting.keep(failed(504, "second timeout")).unwrap_err().to_string();
        assert!(["first timeout", "invalid", "second timeout"].iter().all(|part| said.contains(part)), "{said}");
    }

    /// The same for an object that another writer changes each time.
    #[rstest]
    #[case::overrides("OverridePolicy mczk-zk", &[OVERRIDES, POLICY, EXPORT, TEMPLATE, RESCHEDULED])]
    #[case::policy("PropagationPolicy mczk-zk", &[POLICY, TEMPLATE, RESCHEDULED])]
    #[case::export("ServiceExport zk", &[EXPORT])]
    #[case::template("ZooKeeper zk", &[TEMPLATE, RESCHEDULED])]
    #[tokio::test]
    async fn a_contested_object_stops_what_rests_on_it(#[case] object: &str, #[case] left_out: &[&str]) {
        // The API server refuses the last write too: the failure has both.
        let (client, writes) = api_server(CERTIFICATE);
        let context = context(client);
        let key = ("n".to_owned(), "zk".to_owned());
        context.wrote(&key, object.to_owned(), Some("another".to_owned()), false);
        assert!((0..MOST_WRITES).all(|_| context.may_write(&key, object, None)));
        let failure = apply(&observed(), &plan(), None, &context).await.unwrap_err().to_string();
        assert_eq!(*writes.lock().unwrap(), without(left_out));
        assert!(failure.contains(&format!("{object} is changed each time")) && failure.contains(WORDS), "{failure}");
    }

    /// What it stores has another version each time, and wakes the operator.
    #[tokio::test]
    async fn an_object_that_an_admission_webhook_alters_is_not_written_for_ever() {
        let versions = Arc::new(Mutex::new(0));
        let stored = Arc::clone(&versions);
        let service = service_fn(move |request: Request<Body>| {
            let versions = Arc::clone(&versions);
            async move {
                let sent = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                let mut object: Value = serde_json::from_slice(&sent)?;
                let version = {
                    let mut versions = versions.lock().unwrap();
                    *versions += 1;
                    *versions
                };
                object["metadata"]["resourceVersion"] = json!(version.to_string());
                object["metadata"]["annotations"]["stamped"] = json!(version.to_string());
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(200).body(body)?)
            }
        });
        let (context, observed, plan) = (context(Client::new(service, "n")), observed(), plan());
        let owned = Owned { observed: &observed, context: &context };
        let key = owned.key();
        let mut failure = None;
        for _ in 0..2 * MOST_WRITES {
            // As the operator reads it after its own write.
            let live = json!({
                "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
                "metadata": { "name": "mczk-zk", "namespace": "n", "resourceVersion": stored.lock().unwrap().to_string() },
            });
            failure = owned.write(policy::API_VERSION, "PropagationPolicy", &plan.policy, Some(&live)).await.err();
        }
        assert!(*stored.lock().unwrap() <= MOST_WRITES + 1 && context.is_altered(&key, "PropagationPolicy mczk-zk"));
        assert!(failure.unwrap().to_string().contains("an admission webhook or policy"));
    }

    /// An admission webhook that always stores the same leaves the version as it is, so no event and no limit of writes shows it.
    #[rstest]
    #[case::placement("PropagationPolicy mczk-zk", "/spec/placement/clusterAffinity", json!({ "clusterNames": ["m9"] }), true)]
    #[case::template("ZooKeeper zk", "/spec/replicas", json!(1), true)]
    #[case::a_label_of_a_user("PropagationPolicy mczk-zk", "/metadata/labels", json!({ "team": "x" }), false)]
    #[case::a_default_of_a_newer_karmada("PropagationPolicy mczk-zk", "/spec/newDefault", json!("x"), false)]
    #[case::a_default_of_a_newer_definition("ZooKeeper zk", "/spec/newDefault", json!("x"), false)]
    #[case::a_tombstone("PropagationPolicy mczk-zk.abc123.tombstone", "/spec/placement/clusterAffinity", json!({ "clusterNames": ["m9"] }), false)]
    #[tokio::test]
    async fn a_part_that_the_control_plane_always_stores_otherwise_is_named(
        #[case] object: &'static str,
        #[case] part: &'static str,
        #[case] stored: Value,
        #[case] is_named: bool,
    ) {
        let service = service_fn(move |request: Request<Body>| {
            let stored = stored.clone();
            async move {
                let sent = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                let mut object: Value = serde_json::from_slice(&sent)?;
                object["metadata"]["resourceVersion"] = json!("7");
                let (parent, field) = part.rsplit_once('/').unwrap();
                object.pointer_mut(parent).unwrap()[field] = stored;
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, tower::BoxError>(Response::builder().status(200).body(body)?)
            }
        });
        let (context, observed, plan) = (context(Client::new(service, "n")), observed(), plan());
        let owned = Owned { observed: &observed, context: &context };
        let (kind, name) = object.split_once(' ').unwrap();
        let live = json!({ "kind": kind, "metadata": { "name": name, "namespace": "n", "resourceVersion": "7" } });
        let written = if kind == "ZooKeeper" {
            owned.write(API_VERSION, "ZooKeeper", &plan.template, Some(&live)).await
        } else {
            let ObjectWrite::Apply(mut policy) = plan.policy else { panic!("no policy") };
            policy.metadata.name = Some(name.to_owned());
            owned.write(policy::API_VERSION, "PropagationPolicy", &ObjectWrite::Apply(policy), Some(&live)).await
        };
        let failure = written.err().map(|error| error.to_string());
        let names = failure.as_ref().is_some_and(|text| text.contains(object) && text.contains("stored another spec"));
        assert_eq!(names, is_named, "{failure:?}");
    }

    /// The garbage collector could not remove the binding, and would try again only after minutes.
    #[tokio::test]
    async fn a_template_stays_while_its_binding_is_protected() {
        let (client, writes) = api_server(PROTECTED);
        let mut observed = observed();
        let label = BTreeMap::from([(DELETION_PROTECTION.to_owned(), PROTECTION_ALWAYS.to_owned())]);
        observed.binding.as_mut().unwrap().metadata.labels = Some(label);
        let mut plan = Plan::nothing(observed.object.status.clone().unwrap_or_default());
        (plan.template, plan.protect_binding) = (ObjectWrite::Delete, Some(false));
        let failure = apply(&observed, &plan, None, &context(client)).await.unwrap_err();
        assert_eq!(*writes.lock().unwrap(), [PROTECTED]);
        assert!(failure.to_string().contains(WORDS), "{failure}");
    }

    #[test]
    fn a_secret_that_only_has_the_name_of_a_tombstone_is_a_failure_with_a_remedy() {
        let tombstone = tombstone();
        let mut found = tombstone.secret();
        assert!(no_tombstone(&found, &tombstone).is_none(), "another operator has just created it");
        found.annotations = None;
        let remedy = "run kubectl --namespace n delete secret zk-abc123-tombstone";
        assert!(no_tombstone(&found, &tombstone).is_some_and(|error| error.to_string().ends_with(remedy)));
    }
}
