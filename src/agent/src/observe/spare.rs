//! Asks the API server of a spare whether it would accept the servers of an ensemble. Nothing is created.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::{AgentContext, FIELD_MANAGER, Memory},
    observe::next_pod::{NO_DRY_RUN, unless_unanswered, without_creating},
};
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, conditions::Reason, labels::DEFAULT_CLASS},
};
use mczk_rules::agent::{
    render::object::Object,
    spare::{SpareAnswers, needs, verdict},
};
use mczk_runtime::failure::{During, Error, is_conflict, is_forbidden, refusal};

/// How long an answer counts.
const ASKED_AGAIN: Duration = Duration::from_secs(300);
/// How long a refusal counts: its cause may be mended.
const REFUSED_ASKED_AGAIN: Duration = Duration::from_secs(20);

/// Whether the cluster would accept servers of the ensemble for which it is a spare. `None` for every other object.
pub(super) async fn read(
    key: &(String, String),
    object: &ZooKeeper,
    cluster: Option<&str>,
    memory: &Memory,
    context: &AgentContext,
) -> Result<Option<Cause>, Error> {
    let Some(ensemble) = &object.spec.spare_of else { return Ok(None) };
    if let Some((generation, since, cause)) = &memory.spare {
        let counts = if cause.reason == Reason::ObjectsAccepted { ASKED_AGAIN } else { REFUSED_ASKED_AGAIN };
        if *generation == object.metadata.generation && since.elapsed() < counts {
            return Ok(Some(cause.clone()));
        }
    }
    let cause = match needs(object, ensemble, cluster.unwrap_or_default()) {
        Err(why) => Cause::new(Reason::ObjectsRefused, why),
        Ok(needs) => {
            let mut answers = SpareAnswers {
                no_class: lacks_class(&context.client, needs.storage_class.as_deref()).await?,
                ..SpareAnswers::default()
            };
            for object in &needs.objects {
                answers.refused.extend(refused_write(&key.0, object, context).await?);
            }
            answers.refused.extend(refused::<PersistentVolumeClaim>(&key.0, needs.claim.as_ref(), context).await?);
            answers.refused.extend(refused::<Pod>(&key.0, needs.pod.as_ref(), context).await?);
            verdict(&answers)
        }
    };
    let known = (object.metadata.generation, Instant::now(), cause.clone());
    context.remember(key, |memory| memory.spare = Some(known));
    Ok(Some(cause))
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

/// Why the claim of a server would get no volume. Without the right to read classes the agent does not know.
async fn lacks_class(client: &Client, name: Option<&str>) -> Result<Option<String>, Error> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let found = match name {
        Some("") => return Ok(None),
        Some(name) => classes.get_metadata_opt(name).await.map(|class| class.is_some()),
        None => classes.list_metadata(&ListParams::default()).await.map(|all| {
            all.iter().any(|class| {
                DEFAULT_CLASS.iter().any(|key| class.annotations().get(*key).is_some_and(|is| is == "true"))
            })
        }),
    };
    match found {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(match name {
            Some(name) => format!("The storage class {name} does not exist"),
            None => "No storage class is the default one, and the ensemble names none".to_owned(),
        })),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(error).during(|| "reading storage classes".to_owned()),
    }
}
