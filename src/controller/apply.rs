//! Writes what differs from the plan, and nothing else. Every write carries the resource version that the plan was made
//! on; every delete the uid too.

use std::time::Instant;

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Context, During, Error, FIELD_MANAGER, certificates, observe, resource};
use crate::{
    api::{
        API_VERSION,
        karmada::{DELETION_PROTECTION, PROTECTION_ALWAYS, policy, resource_binding},
    },
    contract::{labels::OPERATOR_FINALIZER, naming::binding_name, tombstone::Tombstone},
    rollout::{
        objects, override_rules,
        plan::{Desired, Finalizer, Observed, Plan},
    },
    runtime::reconcile::{is_gone, is_namespace_going},
};

/// Adds or removes the finalizer; tells whether it did, since then everything has to be looked at again.
pub(super) async fn finalizer(observed: &Observed, wanted: Finalizer, context: &Context) -> Result<bool, Error> {
    let object = &observed.object;
    let mut finalizers = object.finalizers().to_vec();
    match wanted {
        Finalizer::Keep => return Ok(false),
        Finalizer::Add => finalizers.push(OPERATOR_FINALIZER.to_owned()),
        Finalizer::Remove => finalizers.retain(|f| f != OPERATOR_FINALIZER),
    }
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &resource());
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.resource_version() } });
    api.patch(
        &object.name_any(),
        &PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() },
        &Patch::Merge(&patch),
    )
    .await
    .during(|| format!("{wanted:?} finalizer of MultiClusterZooKeeper {namespace}/{}", object.name_any()))?;
    context.metrics.wrote("MultiClusterZooKeeper", "patch");
    Ok(true)
}

/// Writes the owned objects: policies before the template, so that nothing is placed before both locks are closed.
pub(super) async fn apply(
    observed: &Observed,
    plan: &Plan,
    reported: Option<Instant>,
    context: &Context,
) -> Result<(), Error> {
    // Before the template that names it; but one that cannot be made must not keep a running rollout from going on.
    let first = observed.template.is_none();
    if let Some(make) = plan.certificate.as_ref().filter(|_| first) {
        certificates::make(observed, make, context).await?;
    }
    let owned = Owned { observed, context };
    if let Some(ended) = &plan.tombstone {
        owned.ended(ended).await?;
    }
    let live = observed.overrides.as_ref();
    let begins = begins_cluster(observed, plan);
    match &plan.overrides {
        Desired::Leave => {}
        Desired::Delete => owned.delete(policy::API_VERSION, "OverridePolicy", live.map(|p| &p.metadata)).await?,
        Desired::Apply(wanted) => {
            let current = live.is_some_and(|l| {
                l.spec == wanted.spec && objects::is_current(&l.metadata, &l.spec, &wanted.metadata, &wanted.spec)
            });
            if !current {
                let wanted = value(wanted)?;
                owned.write(policy::API_VERSION, "OverridePolicy", &wanted, live.is_some()).await?;
                if let (true, Some(reported)) = (begins, reported) {
                    context.metrics.transition.observe(reported.elapsed().as_secs_f64());
                }
            }
        }
    }
    let live = observed.policy.as_ref();
    match &plan.policy {
        Desired::Leave => {}
        Desired::Delete => owned.delete(policy::API_VERSION, "PropagationPolicy", live.map(|p| &p.metadata)).await?,
        Desired::Apply(wanted) => {
            if !live.is_some_and(|l| objects::is_current(&l.metadata, &l.spec, &wanted.metadata, &wanted.spec)) {
                owned.write(policy::API_VERSION, "PropagationPolicy", &value(wanted)?, live.is_some()).await?;
            }
        }
    }
    for (key, desired) in &plan.services {
        owned.service(key, desired).await?;
    }
    // Before the template goes: the garbage collector would else be refused, and come back only after minutes.
    if plan.protect_binding == Some(false) {
        owned.protect_binding(false).await?;
    }
    let live = observed.template.as_ref();
    match &plan.template {
        Desired::Leave => {}
        Desired::Delete => owned.delete(API_VERSION, "ZooKeeper", live.map(|t| &t.metadata)).await?,
        Desired::Apply(wanted) => {
            let current = live.is_some_and(|l| {
                l.spec == wanted.spec
                    && objects::is_current(&l.metadata, &l.spec, &wanted.metadata, &wanted.spec)
                    && conflict_resolution(&l.metadata) == conflict_resolution(&wanted.metadata)
            });
            if !current {
                owned.write(API_VERSION, "ZooKeeper", &value(wanted)?, live.is_some()).await?;
            }
        }
    }
    if plan.protect_binding == Some(true) {
        owned.protect_binding(true).await?;
    }
    if let Some(make) = plan.certificate.as_ref().filter(|_| !first) {
        certificates::make(observed, make, context).await?;
    }
    Ok(())
}

fn conflict_resolution(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(crate::api::karmada::CONFLICT_RESOLUTION)
}

/// Whether the plan gives a cluster a pin that it did not have.
fn begins_cluster(observed: &Observed, plan: &Plan) -> bool {
    let Desired::Apply(wanted) = &plan.overrides else { return false };
    let before = observed.overrides.as_ref().map(|p| override_rules::read(&p.spec)).unwrap_or_default();
    override_rules::read(&wanted.spec)
        .cluster_specs
        .iter()
        .any(|(cluster, pin)| before.cluster_specs.get(cluster).map(|p| &p.spec_hash) != Some(&pin.spec_hash))
}

fn value<T: serde::Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).during(|| "writing an object as JSON".to_owned())
}

struct Owned<'a> {
    observed: &'a Observed,
    context: &'a Context,
}

impl Owned<'_> {
    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let namespace = self.observed.object.namespace().unwrap_or_default();
        observe::api(&self.context.client, api_version, kind, observe::plural(kind), &namespace)
    }

    /// Server-side apply, of exactly the version that was seen, or of an object that does not exist.
    async fn write(&self, api_version: &str, kind: &'static str, object: &Value, exists: bool) -> Result<(), Error> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let mut object = object.clone();
        if let Some(reports) = object.as_object_mut() {
            reports.remove("status");
        }
        if !exists && let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // Creates or fails: the API server accepts version 0 only of an object that does not exist. So an object that
            // somebody made since we looked is never taken over.
            meta.insert("resourceVersion".to_owned(), json!("0"));
        }
        let params = PatchParams { force: exists, ..PatchParams::apply(FIELD_MANAGER) };
        self.api(api_version, kind)
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .during(|| format!("applying {kind} {name}"))?;
        info!(kind, name, namespace = self.observed.object.namespace(), "applied");
        self.context.metrics.wrote(kind, "apply");
        Ok(())
    }

    /// Lifts Karmada's deletion protection and deletes, only exactly the object that was seen.
    async fn delete(&self, api_version: &str, kind: &'static str, live: Option<&ObjectMeta>) -> Result<(), Error> {
        let Some(meta) = live.filter(|m| m.deletion_timestamp.is_none()) else { return Ok(()) };
        let name = meta.name.clone().unwrap_or_default();
        let api = self.api(api_version, kind);
        let mut version = meta.resource_version.clone();
        if meta.labels.as_ref().is_some_and(|l| l.contains_key(DELETION_PROTECTION)) {
            let patch = json!({ "metadata": { "labels": { DELETION_PROTECTION: null }, "resourceVersion": version } });
            let lifted = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .during(|| format!("lifting the deletion protection of {kind} {name}"))?;
            version = lifted.metadata.resource_version;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: meta.uid.clone(), resource_version: version }),
            ..DeleteParams::background()
        };
        match api.delete(&name, &params).await {
            Err(error) if is_gone(&error) => Ok(()),
            other => other.map(drop).during(|| format!("deleting {kind} {name}")),
        }?;
        info!(kind, name, namespace = self.observed.object.namespace(), "deleted");
        self.context.metrics.wrote(kind, "delete");
        Ok(())
    }

    async fn service(&self, key: &str, desired: &Desired<Value>) -> Result<(), Error> {
        let live = self.observed.services.get(key);
        let meta = |v: &Value| -> ObjectMeta {
            v.get("metadata").cloned().and_then(|m| serde_json::from_value(m).ok()).unwrap_or_default()
        };
        let kind = match key.split_once('/').map(|(kind, _)| kind) {
            Some("ServiceExport") => "ServiceExport",
            Some("ServiceImport") => "ServiceImport",
            _ => "PropagationPolicy",
        };
        let version = match kind {
            "PropagationPolicy" => policy::API_VERSION,
            _ => crate::rollout::desired::MCS_API_VERSION,
        };
        match desired {
            Desired::Leave => Ok(()),
            Desired::Delete => self.delete(version, kind, live.map(meta).as_ref()).await,
            Desired::Apply(wanted) => {
                let current = live.is_some_and(|live| {
                    let none = Value::Null;
                    objects::is_current(
                        &meta(live),
                        live.get("spec").unwrap_or(&none),
                        &meta(wanted),
                        wanted.get("spec").unwrap_or(&none),
                    )
                });
                if current { Ok(()) } else { self.write(version, kind, wanted, live.is_some()).await }
            }
        }
    }

    /// Tells clusters that are away that a life is over: the policy first, since the Secret is what is looked for. Both names
    /// hold the life, which nothing foreign has in its name by chance.
    async fn ended(&self, ended: &Tombstone) -> Result<(), Error> {
        let namespace = &ended.namespace;
        let policy = ended.policy();
        let name = policy.metadata.name.clone().unwrap_or_default();
        let written = self
            .api(policy::API_VERSION, "PropagationPolicy")
            .patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&value(&policy)?))
            .await;
        if matches!(&written, Err(error) if is_namespace_going(error)) {
            // It goes in the reports too, with all that is in it.
            warn!(namespace, name, "the namespace is being deleted: clusters that are away are not told");
            return Ok(());
        }
        drop(written.during(|| format!("applying PropagationPolicy {name}"))?);
        let secrets: Api<Secret> = Api::namespaced(self.context.client.clone(), namespace);
        let secret = Secret { metadata: ended.secret(), immutable: Some(true), ..Secret::default() };
        let name = secret.metadata.name.clone().unwrap_or_default();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match secrets.create(&params, &secret).await {
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
            other => drop(other.during(|| format!("making Secret {name}"))?),
        }
        info!(secret = name, namespace, clusters = ?ended.clusters, "clusters are told, when they are back, that a life is over");
        self.context.metrics.wrote("Secret", "create");
        Ok(())
    }

    /// The binding carries Karmada's deletion protection too, so that the deletion of a namespace waits for us.
    async fn protect_binding(&self, protect: bool) -> Result<(), Error> {
        let object = &self.observed.object;
        let Some(binding) =
            self.observed.binding.as_ref().filter(|b| b.metadata.deletion_timestamp.is_none() || !protect)
        else {
            return Ok(());
        };
        let template = self.observed.template.as_ref().and_then(ResourceExt::uid);
        if protect && (template.is_none() || binding.spec.resource.uid != template) {
            return Ok(());
        }
        let has = binding.metadata.labels.as_ref().is_some_and(|l| l.contains_key(DELETION_PROTECTION));
        if has == protect {
            return Ok(());
        }
        let label = protect.then_some(PROTECTION_ALWAYS);
        let patch = json!({ "metadata": {
            "labels": { DELETION_PROTECTION: label },
            "resourceVersion": binding.metadata.resource_version,
        }});
        let name = binding_name(&object.name_any());
        self.api(resource_binding::API_VERSION, "ResourceBinding")
            .patch(
                &name,
                &PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() },
                &Patch::Merge(&patch),
            )
            .await
            .during(|| format!("protecting ResourceBinding {name}"))?;
        self.context.metrics.wrote("ResourceBinding", "patch");
        Ok(())
    }
}
