//! Whether a spare would accept the servers of an ensemble: what the agent asks for, and what it makes of the answers.

use serde_json::{from_value, json};

use crate::{
    agent::{
        next_pod::{claim_for, pod_of},
        render::{
            object::{Kind, Object},
            render,
            source::Source,
        },
    },
    rollout::cluster_spec,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube_core::ResourceExt;
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, conditions::Reason, naming::incarnation},
    zookeeper::{Ensemble, Role, Server},
};

/// The uid of an owner that does not exist: the API server demands one.
const NO_UID: &str = "00000000-0000-4000-8000-000000000000";

/// What a server in the spare would need.
#[derive(Clone, Debug, PartialEq)]
pub struct SpareNeeds {
    /// What the agent would write, in its order.
    pub objects: Vec<Object>,
    /// The pod that the StatefulSet controller would create. Its account is the one that every namespace has: its own does not
    /// exist yet.
    pub pod: Option<Pod>,
    /// The claim that the StatefulSet controller would create.
    pub claim: Option<PersistentVolumeClaim>,
    /// Name of the storage class. `None` for the default class.
    pub storage_class: Option<String>,
}

/// What one server of an ensemble would need in this cluster, with the overrides of the cluster.
///
/// # Errors
/// In words for a condition: if the agent is too old for the spec.
pub fn needs(object: &ZooKeeper, ensemble: &str, cluster: &str) -> Result<SpareNeeds, String> {
    let spec = cluster_spec::for_cluster(&object.spec, cluster, 1, None, 0).map_err(|error| error.to_string())?;
    // No ensemble has it: the names of a real one may be taken by its former objects.
    let incarnation = incarnation(&object.uid().unwrap_or_default(), u32::MAX);
    let host = format!("{ensemble}-{incarnation}-0");
    let server = Server { id: 1, cluster: cluster.to_owned(), ordinal: 0, host, role: Role::Voter };
    let list = Ensemble { incarnation: Some(incarnation), servers: vec![server], ..Ensemble::default() };
    let namespace = object.namespace().unwrap_or_default();
    let source = Source {
        name: ensemble,
        namespace: &namespace,
        cluster,
        spec: &spec,
        list: &list,
        voters: 1,
        observers: 0,
        material: None,
        client: None,
        none_ready: false,
    };
    let mut objects = render(&source).map_err(|refused| refused.to_string())?;
    // Certificates come with the servers. This one stands for the right to write them.
    objects.push(source.object(Kind::Secret, source.base(), &source.labels(), json!({ "type": "Opaque" })));
    let set = objects.iter().find(|object| object.kind == Kind::StatefulSet);
    let set = set.and_then(|set| from_value(set.value.clone()).ok());
    let name = format!("{}-0", source.base());
    let mut pod = set.as_ref().and_then(|set| pod_of(set, &name, &name));
    if let Some(pod) = &mut pod {
        for owner in pod.metadata.owner_references.iter_mut().flatten() {
            NO_UID.clone_into(&mut owner.uid);
        }
        if let Some(spec) = &mut pod.spec {
            spec.service_account_name = None;
        }
    }
    let claim = set.as_ref().and_then(|set| claim_for(set, &name));
    Ok(SpareNeeds { objects, pod, claim, storage_class: spec.template.storage.storage_class_name })
}

/// What the agent found in the spare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpareAnswers {
    /// Kind and name of each object that the API server would refuse, with its words.
    pub refused: Vec<String>,
    /// Why no volume could be made.
    pub no_class: Option<String>,
}

/// What the agent reports of the answers.
#[must_use]
pub fn verdict(answers: &SpareAnswers) -> Cause {
    let all = || answers.no_class.iter().chain(&answers.refused).cloned().collect::<Vec<_>>().join("; ");
    match answers {
        SpareAnswers { no_class: Some(_), .. } => Cause::new(Reason::NoStorageClass, all()),
        SpareAnswers { refused, .. } if !refused.is_empty() => Cause::new(Reason::ServersRefused, all()),
        _ => Cause::new(Reason::ServersAccepted, "This cluster would accept servers of the ensemble"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{merged, zookeeper};

    fn asked(more: &serde_json::Value) -> SpareNeeds {
        let spec = json!({ "spec": { "replicas": 0, "spareOf": "zk", "revision": "0123456789" } });
        needs(&zookeeper(merged(spec, json!({ "spec": more }))), "zk", "m4").unwrap()
    }

    #[test]
    fn the_spare_is_asked_for_all_that_a_server_needs() {
        let needs = asked(&json!({}));
        let kinds: Vec<&str> = needs.objects.iter().map(|object| object.kind.name()).collect();
        assert!(Kind::ALL.iter().all(|kind| kinds.contains(&kind.name())), "{kinds:?}");
        let pod = needs.pod.unwrap();
        let incarnation = incarnation("u", u32::MAX);
        assert_eq!(pod.name_any(), format!("zk-{incarnation}-0"));
        assert_eq!(pod.metadata.owner_references.unwrap()[0].uid, NO_UID, "policies may refuse a pod without an owner");
        assert_eq!(pod.spec.unwrap().service_account_name, None);
        assert_eq!(needs.claim.unwrap().name_any(), format!("data-zk-{incarnation}-0"));
        assert_eq!(needs.storage_class, None);
    }

    #[test]
    fn the_overrides_of_the_spare_count() {
        let source = json!({ "overrides": [
            { "cluster": "m3", "storageClassName": "slow" }, { "cluster": "m4", "storageClassName": "fast" },
        ] });
        let needs = asked(&json!({ "source": source }));
        assert_eq!(needs.storage_class.as_deref(), Some("fast"));
        assert_eq!(needs.claim.unwrap().spec.unwrap().storage_class_name.as_deref(), Some("fast"));
    }

    #[test]
    fn a_spec_of_a_newer_version_is_refused_in_words() {
        let spec =
            json!({ "spec": { "replicas": 0, "spareOf": "zk", "revision": "0123456789", "renderVersion": 900 } });
        assert!(needs(&zookeeper(spec), "zk", "m4").unwrap_err().contains("900"));
    }

    #[rstest]
    #[case::all_accepted(None, &[], Reason::ServersAccepted, "would accept")]
    #[case::refused(None, &["Pod zk-spare-0: exceeded quota"], Reason::ServersRefused, "Pod zk-spare-0: exceeded quota")]
    #[case::no_class(Some("StorageClass fast does not exist"), &[], Reason::NoStorageClass, "fast")]
    #[case::both(Some("no class"), &["Pod: no"], Reason::NoStorageClass, "no class; Pod: no")]
    fn the_verdict_names_everything(
        #[case] no_class: Option<&str>,
        #[case] refused: &[&str],
        #[case] reason: Reason,
        #[case] part: &str,
    ) {
        let refused = refused.iter().map(|words| (*words).to_owned()).collect();
        let cause = verdict(&SpareAnswers { refused, no_class: no_class.map(str::to_owned) });
        assert!(cause.reason == reason && cause.message.contains(part), "{cause:?}");
    }
}
