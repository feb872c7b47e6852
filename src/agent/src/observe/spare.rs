//! Asks the API server of a spare whether it would accept the servers of an ensemble. Nothing is created.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::{future::try_join_all, try_join};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;
use tracing::warn;

use crate::{
    context::{AgentContext, FIELD_MANAGER, Memory},
    observe::{
        next_pod::{NO_DRY_RUN, unless_unanswered, without_creating},
        volumes,
    },
};
use mczk_api::{
    ZooKeeper,
    contract::{
        cause::Cause,
        conditions::Reason,
        labels::{DEFAULT_CLASS, ENSEMBLE_LABEL},
    },
};
use mczk_rules::agent::{
    render::{Kind, object::Object},
    spare::{SpareAnswers, SpareNeeds, needs, verdict},
};
use mczk_runtime::failure::{During, Error, is_conflict, is_forbidden, refusal};

/// How long an answer counts.
const ASKED_AGAIN: Duration = Duration::from_secs(300);
/// How long a refusal counts: its cause may be mended.
pub(crate) const REFUSED_ASKED_AGAIN: Duration = Duration::from_secs(20);
/// How long the answers may take together. An admission webhook can hold each one for half a minute.
const LONGEST: Duration = Duration::from_secs(40);

/// Whether the cluster would accept servers of the ensemble for which it is a spare. `None` for every other object, and if the API
/// server gives no answer in time.
pub(super) async fn read(
    key: &(String, String),
    object: &ZooKeeper,
    cluster: Option<&str>,
    memory: &Memory,
    context: &AgentContext,
) -> Option<Cause> {
    let ensemble = object.spec.spare_of.as_ref()?;
    if let Some((generation, since, cause)) = &memory.spare {
        let is_accepted = cause.as_ref().is_some_and(|cause| cause.reason == Reason::ServersAccepted);
        let counts = if is_accepted { ASKED_AGAIN } else { REFUSED_ASKED_AGAIN };
        if *generation == object.metadata.generation && since.elapsed() < counts {
            return cause.clone();
        }
    }
    let cause = match needs(object, ensemble, cluster.unwrap_or_default()) {
        Err(why) => Some(Cause::new(Reason::ServersRefused, why)),
        Ok(needs) => match timeout(LONGEST, ask(&key.0, ensemble, &needs, context)).await {
            Ok(Ok(answers)) => Some(verdict(&answers)),
            Ok(Err(error)) => {
                warn!(namespace = key.0, name = key.1, %error, "the cluster does not say whether it would accept servers");
                None
            }
            Err(_) => {
                warn!(
                    namespace = key.0,
                    name = key.1,
                    "the cluster does not say in time whether it would accept servers"
                );
                None
            }
        },
    };
    let known = (object.metadata.generation, Instant::now(), cause.clone());
    context.remember(key, |memory| memory.spare = Some(known));
    cause
}

/// Asks for everything at once.
async fn ask(
    namespace: &str,
    ensemble: &str,
    needs: &SpareNeeds,
    context: &AgentContext,
) -> Result<SpareAnswers, Error> {
    // A server uses the volume of a former stay again, and quotas count it already. A claim without a volume proves nothing.
    let claims = volumes::read(context, &(namespace.to_owned(), ensemble.to_owned())).await?;
    let has_volume = claims.iter().any(volumes::is_bound);
    let claim = needs.claim.as_ref().filter(|_| !has_volume);
    let writes = try_join_all(needs.objects.iter().map(|object| refused_write(namespace, object, context)));
    let (no_class, foreign, writes, claim, pod) = try_join!(
        lacks_class(&context.client, needs.storage_class.as_deref()),
        foreign_service(namespace, ensemble, context),
        writes,
        refused::<PersistentVolumeClaim>(namespace, claim, context),
        refused::<Pod>(namespace, needs.pod.as_ref(), context),
    )?;
    let refused = foreign.into_iter().chain(writes.into_iter().flatten()).chain(claim).chain(pod).collect();
    Ok(SpareAnswers { refused, no_class: no_class.filter(|_| !has_volume) })
}

/// Why servers would wait for the name of their Service for clients.
async fn foreign_service(namespace: &str, ensemble: &str, context: &AgentContext) -> Result<Option<String>, Error> {
    let named = ListParams::default().fields(&format!("metadata.name={ensemble}"));
    let found = context.api(namespace, Kind::Service).list_metadata(&named).await;
    let found = found.during(|| format!("looking for Service {ensemble}"))?;
    let is_foreign = found.iter().any(|service| service.labels().get(ENSEMBLE_LABEL).is_none_or(|of| of != ensemble));
    Ok(is_foreign.then(|| format!("Service {ensemble} exists and does not belong to the agent")))
}

/// The words with which the API server would refuse a write of the agent.
async fn refused_write(namespace: &str, object: &Object, context: &AgentContext) -> Result<Option<String>, Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force().dry_run();
    let written = context.api(namespace, object.kind).patch(&object.name, &params, &Patch::Apply(&object.value)).await;
    words(object.kind.name(), &object.name, written.map(drop), false)
}

/// The words with which the API server would refuse an object that the StatefulSet controller creates.
async fn refused<K>(namespace: &str, object: Option<&K>, context: &AgentContext) -> Result<Option<String>, Error>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let Some(object) = object else { return Ok(None) };
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let created = api.create(&without_creating(), object).await;
    words(&K::kind(&()), &object.name_any(), created.map(drop), true)
}

/// `by_controller` is true if the agent itself need not have the right.
fn words(kind: &str, name: &str, result: kube::Result<()>, by_controller: bool) -> Result<Option<String>, Error> {
    let Err(error) = result else { return Ok(None) };
    let Some(why) = refusal(&error).map(str::to_owned) else {
        // An object of this name is there: the next write decides.
        return if is_conflict(&error) { Ok(None) } else { Err(error).during(|| format!("asking for {kind} {name}")) };
    };
    let counts = if by_controller { unless_unanswered(error).is_err() } else { !why.contains(NO_DRY_RUN) };
    Ok(counts.then(|| format!("{kind} {name}: {why}")))
}

/// Why the claim of a server would get no volume. A volume that was made beforehand needs no storage class. Without the right to
/// read either the agent does not know.
async fn lacks_class(client: &Client, name: Option<&str>) -> Result<Option<String>, Error> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let found = match name {
        Some(name) => classes.get_metadata_opt(name).await.map(|class| class.is_some()),
        None => classes.list_metadata(&ListParams::default()).await.map(|all| all.iter().any(is_default)),
    };
    let found = match found {
        Ok(false) => {
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            volumes.list(&ListParams::default()).await.map(|all| all.iter().any(|volume| is_free(volume, name)))
        }
        other => other,
    };
    match found {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(match name {
            Some(name) => format!("The storage class {name} does not exist, and no free volume has it"),
            None => "No storage class is the default one, the ensemble names none, and no volume without one is free"
                .to_owned(),
        })),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(error).during(|| "reading storage classes".to_owned()),
    }
}

fn is_default(class: &PartialObjectMeta<StorageClass>) -> bool {
    DEFAULT_CLASS.iter().any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"))
}

fn is_free(volume: &PersistentVolume, class: Option<&str>) -> bool {
    let of = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Available") && of == class.unwrap_or_default()
}
