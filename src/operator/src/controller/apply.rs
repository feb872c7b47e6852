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

use super::{certificates, context::Context};
use mczk_api::{
    API_VERSION,
    contract::{
        labels::OPERATOR_FINALIZER,
        naming::binding_name,
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
    object_change::{ObjectChange, change, changes_protection},
    override_rules,
    plan::{Finalizer, ObjectWrite, Observed, Plan},
    services::MCS_API_VERSION,
};
use mczk_runtime::failure::{During, Error, is_namespace_terminating, is_not_found};

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
    if let Some(tombstone) = &plan.tombstone {
        owned.tombstone(tombstone).await?;
    }
    // The policies before the template: Karmada must not propagate it before the OverridePolicy holds every cluster at 0
    // servers.
    owned.overrides(plan, reported).await?;
    owned.policy(plan).await?;
    // What the API server refuses of one name stops no server.
    let mut refused = Ok(());
    for (key, desired) in &plan.services {
        match owned.service(key, desired).await {
            Err(error) if error.refusal().is_some() => refused = refused.and(Err(error)),
            other => other?,
        }
    }
    // Before the template is deleted: otherwise the API server refuses the garbage collector, which retries only after
    // minutes.
    if plan.protect_binding == Some(false) {
        owned.protect_binding(false).await?;
    }
    owned.template(plan).await?;
    if plan.protect_binding == Some(true) {
        owned.protect_binding(true).await?;
    }
    if let Some(at) = plan.reschedule {
        owned.reschedule(at).await?;
    }
    if let Some(make) = plan.certificate.as_ref().filter(|_| !first) {
        certificates::make(observed, make, context).await?;
    }
    refused
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
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, written) = if exists {
            ("update", api.replace(&name, &params, &next).await.during(|| format!("updating {kind} {name}"))?)
        } else {
            // The API server refuses it if another object of that name was created meanwhile.
            ("create", api.create(&params, &next).await.during(|| format!("creating {kind} {name}"))?)
        };
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
            _ => (policy::API_VERSION, "PropagationPolicy"),
        };
        self.write(version, kind, desired, self.observed.services.get(key)).await.map(drop)
    }

    /// Writes the tombstone of an incarnation for unreachable clusters: its policy first, since the tombstone counts
    /// as written once its Secret exists. Both names contain the incarnation, so no foreign object has them by chance.
    async fn tombstone(&self, tombstone: &Tombstone) -> Result<(), Error> {
        let namespace = &tombstone.namespace;
        let policy = tombstone.policy();
        let name = policy.metadata.name.clone().unwrap_or_default();
        let live = self.api(policy::API_VERSION, "PropagationPolicy").get_opt(&name).await;
        let live = live.during(|| format!("reading PropagationPolicy {name}"))?.as_ref().map(value).transpose()?;
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
        let object = &self.observed.object;
        self.context.asked(&(object.namespace().unwrap_or_default(), object.name_any()));
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
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_secret_that_only_has_the_name_of_a_tombstone_is_a_failure_with_a_remedy() {
        let clusters = BTreeSet::from(["m3".to_owned()]);
        let tombstone =
            Tombstone { namespace: "n".to_owned(), name: "zk".to_owned(), incarnation: "abc123".to_owned(), clusters };
        let mut found = tombstone.secret();
        assert!(no_tombstone(&found, &tombstone).is_none(), "another operator has just created it");
        found.annotations = None;
        let remedy = "run kubectl --namespace n delete secret zk-abc123-tombstone";
        assert!(no_tombstone(&found, &tombstone).is_some_and(|error| error.to_string().ends_with(remedy)));
    }
}
