//! What the agent accepts. It refuses everything else, whatever the control plane sends. This is the last line of defence.

use kube_core::ResourceExt;
use serde_json::Value;

use crate::{agent::render::version, server::zoo_cfg};
use mczk_api::{
    ZooKeeper,
    contract::{
        cause::Cause,
        conditions::Reason,
        control_api::{ServerConfig, ServerReport},
        labels::{CLUSTER_ANNOTATION, KARMADA_MANAGED_LABEL},
        server_list, settings, spec_hash,
    },
    mutation::broken,
    pod::ZooCfgEntry,
    zookeeper::{Ensemble, ZooKeeperSpec},
};

/// Annotation of Karmada: namespace of the Work, which is named after the cluster.
const WORK_NAMESPACE: &str = "work.karmada.io/namespace";

/// Why the agent follows no list of a newer version that it cannot read.
const NOT_UNDERSTOOD: &str = "A newer version of mczk wrote the server list, and this version cannot read it. Upgrade the agent (mczk agent) in this cluster";

/// Whether the agent accepts a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The agent applies the spec.
    Accepted,
    /// The spec is not assigned to this cluster: the rollout has not reached it, the control plane lost the cluster spec, or it
    /// was restored from a copy that is older than the accepted spec or than its incarnation. Only the membership follows the
    /// server list: see `list_counts`.
    NotAssigned,
    /// The agent refuses the spec for this reason. Nothing changes.
    Refused(String),
}

/// Accepts a spec only if it is meant for this cluster and its hashes match, that of its server list too. `configurations` are
/// those of its servers that are here: an ensemble that is declared again has no former spec that the API server could compare.
#[must_use]
pub fn acceptance(
    object: &ZooKeeper,
    stored: &Value,
    cluster: Option<&str>,
    configurations: &[ServerConfig],
) -> Acceptance {
    let spec = &object.spec;
    let managed = object.labels().contains_key(KARMADA_MANAGED_LABEL);
    let observed_spec_hash = accepted_hash(object);
    if spec.ensemble == Ensemble::default() && !managed && observed_spec_hash.is_none() {
        return refused(
            "The object has no server list. Create a MultiClusterZooKeeper, which writes ZooKeeper objects",
        );
    }
    let (Some(meant), Some(spec_hash)) = (&spec.cluster, &spec.spec_hash) else { return Acceptance::NotAssigned };
    if spec.ensemble == Ensemble::default() || names_former_incarnation(object) {
        return Acceptance::NotAssigned;
    }
    let Some(cluster) = cluster else {
        return refused(format!(
            "Karmada's name of this cluster is unknown: the object has no annotation {WORK_NAMESPACE}. Start the agent with --cluster"
        ));
    };
    if meant != cluster {
        return refused(format!(
            "The spec is meant for cluster {meant}, and this is {cluster}. {}",
            remedy_for_name(object, cluster)
        ));
    }
    if !spec_hash::hash_matches(stored) {
        return refused(
            "The spec is damaged: specHash does not match. The operator writes it again. If it lasts, the kinds in this cluster are older than the operator: run `mczk install` of this version again, or `mczk register --only crds,propagation`",
        );
    }
    if !spec.ensemble.phase.is_understood() {
        return refused(NOT_UNDERSTOOD);
    }
    if !list_is_intact(stored) {
        return refused(
            "The server list is damaged: it names no server, or its hash does not match. The operator writes it again",
        );
    }
    if let Err(unknown) = version::known(spec.render_version) {
        return refused(unknown.to_string());
    }
    if is_older(spec_hash, observed_spec_hash) {
        return Acceptance::NotAssigned;
    }
    if !managed && observed_spec_hash != Some(spec_hash) {
        return refused("Karmada does not manage this object: the agent accepts only the spec that it accepted before");
    }
    if observed_spec_hash != Some(spec_hash)
        && let Some(why) = refused_setting(spec, configurations)
    {
        return refused(why);
    }
    Acceptance::Accepted
}

/// Why servers would not start with the settings of a spec, or would lose what they have stored. The definitions refuse most of
/// these before, but not all values of flags.
fn refused_setting(spec: &ZooKeeperSpec, configurations: &[ServerConfig]) -> Option<String> {
    let template = &spec.template;
    let of_entry = |entry: &ZooCfgEntry| {
        let why = settings::refusal_in_zoo_cfg(&entry.name, &entry.value)?;
        Some(format!("template.zooCfg {}: {why}", entry.name))
    };
    let of_flag = |flag: &String| {
        let why = settings::refusal_of_flag(flag)?;
        Some(format!("template.jvmFlags {}: {why}", flag.split('=').next().unwrap_or_default()))
    };
    let of_change = |config: &ServerConfig| {
        settings::refusal_of_change(|name| value(&config.zoo_cfg, name), |name| value(&template.zoo_cfg, name))
    };
    let changes = || configurations.iter().find_map(of_change).map(|why| format!("template.zooCfg {why}"));
    let sessions = || {
        let why = settings::refusal_of_sessions(|name| zoo_cfg::effective(&template.zoo_cfg, name))?;
        Some(format!("template.zooCfg: {why}"))
    };
    let of_entries = template.zoo_cfg.iter().find_map(of_entry);
    of_entries.or_else(|| template.jvm_flags.iter().find_map(of_flag)).or_else(sessions).or_else(changes)
}

fn value<'a>(entries: &'a [ZooCfgEntry], name: &str) -> Option<&'a str> {
    entries.iter().rfind(|entry| entry.name == name).map(|entry| entry.value.as_str())
}

fn refused(why: impl Into<String>) -> Acceptance {
    Acceptance::Refused(why.into())
}

/// What corrects a wrong name of this cluster. The name that the object keeps wins over the agent's flag.
pub(super) fn remedy_for_name(object: &ZooKeeper, cluster: &str) -> String {
    match (object.annotations().contains_key(CLUSTER_ANNOTATION), accepted_hash(object).is_some()) {
        (true, true) => format!(
            "The annotation {CLUSTER_ANNOTATION} of the object keeps the name, because its servers are listed under it. Join this \
             cluster to Karmada as {cluster} again. No flag of the agent changes the name"
        ),
        (true, false) => format!(
            "The annotation {CLUSTER_ANNOTATION} of the object keeps this name. If it is wrong, correct the agent's --cluster, then \
             remove the annotation from the object in this cluster"
        ),
        (false, _) => "Correct the agent's --cluster".to_owned(),
    }
}

/// True if a spec comes from an older copy of the control plane. All clusters get such specs at once. The operator writes later
/// ones, a cluster at a time.
fn is_older(spec_hash: &str, accepted: Option<&str>) -> bool {
    let generation = spec_hash::generation_of;
    accepted.is_some_and(|accepted| generation(spec_hash) < generation(accepted)) && !broken!(AcceptOlderSpec)
}

/// True if the declared incarnation is over by the list that the agent has accepted: an older copy of the control plane was
/// restored. The incarnation that lives here goes on.
fn names_former_incarnation(object: &ZooKeeper) -> bool {
    let declared = object.spec.ensemble.incarnation.as_ref();
    let former = accepted_list(object).map_or(&[][..], |list| &list.former_incarnations);
    declared.is_some_and(|declared| former.contains(declared)) && !broken!(AcceptOlderSpec)
}

/// The spec hash that the agent accepted last.
fn accepted_hash(object: &ZooKeeper) -> Option<&str> {
    object.status.as_ref()?.observed_spec_hash.as_deref()
}

/// True if the server list of the spec counts. It is the same for every cluster and has its own hash. So it counts without an
/// accepted spec if it ends the ensemble, or if the spec is not assigned and the agent knows the incarnation. The operator may
/// assign a spec only after the membership has followed the list.
#[must_use]
pub(crate) fn list_counts(object: &ZooKeeper, stored: &Value, acceptance: &Acceptance) -> bool {
    let declared = &object.spec.ensemble;
    let is_known = accepted_list(object).is_some_and(|list| list.incarnation == declared.incarnation);
    let continues = is_known && *acceptance == Acceptance::NotAssigned && declared.phase.is_understood();
    let managed = object.labels().contains_key(KARMADA_MANAGED_LABEL);
    let ends = declared.phase.is_ending() && !names_former_incarnation(object);
    *acceptance == Acceptance::Accepted || managed && (continues || ends) && list_is_intact(stored)
}

/// The server list that the agent accepted last.
fn accepted_list(object: &ZooKeeper) -> Option<&Ensemble> {
    let reported = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    reported.filter(|list| list.phase.is_understood() && server_list::is_intact(list))
}

/// The server lists that Karmada delivered: that of the spec, if it counts, and the one that the agent accepted last.
#[must_use]
pub fn delivered_lists<'a>(object: &'a ZooKeeper, stored: &Value, acceptance: &Acceptance) -> Vec<&'a Ensemble> {
    let declared = Some(&object.spec.ensemble).filter(|_| list_counts(object, stored, acceptance));
    declared.into_iter().chain(accepted_list(object)).collect()
}

/// Why this version does not understand the object, although it can parse it: a newer version wrote one of its lists.
#[must_use]
pub fn not_understood(object: &ZooKeeper) -> Option<&'static str> {
    let reported = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let mut lists = reported.into_iter().chain([&object.spec.ensemble]);
    lists.any(|list| !list.phase.is_understood()).then_some(NOT_UNDERSTOOD)
}

/// Why the agent does not follow the newest list: the ensemble keeps it, and a newer version wrote it.
pub(super) fn newer_list(list: &Ensemble, views: &[ServerReport]) -> Option<Cause> {
    let reported = views.iter().filter_map(|view| view.server_list.as_ref());
    let mut unread = reported.filter(|reported| !reported.phase.is_understood());
    unread
        .any(|unread| unread.incarnation == list.incarnation && unread.epoch > list.epoch)
        .then(|| Cause { reason: Reason::UnsupportedSpec, message: NOT_UNDERSTOOD.to_owned() })
}

/// True if the server list of a stored spec has a matching hash, and names servers of an incarnation.
#[must_use]
fn list_is_intact(stored: &Value) -> bool {
    let Some(list) = stored.get("ensemble") else { return false };
    let some = |pointer: &str, is: fn(&Value) -> bool| list.get(pointer).is_some_and(is);
    server_list::hash_matches(list)
        && some("incarnation", Value::is_string)
        && some("epoch", Value::is_i64)
        && some("servers", |servers| servers.as_array().is_some_and(|servers| !servers.is_empty()))
}

/// The newest server list of one incarnation, of the delivered ones and those that servers report. The first delivered list
/// determines the incarnation. They come in this order: the declared one, then the accepted one.
#[must_use]
pub fn newest<'a>(
    delivered: impl IntoIterator<Item = &'a Ensemble>,
    views: &'a [ServerReport],
) -> Option<&'a Ensemble> {
    let mut delivered = delivered.into_iter();
    let first = delivered.next()?;
    let reported = views.iter().filter_map(|view| view.server_list.as_ref());
    let intact = reported.filter(|list| !list.servers.is_empty() && server_list::is_intact(list));
    let is_same = |list: &&Ensemble| list.incarnation == first.incarnation;
    // Of lists with one epoch the one that the agent accepted before counts: a control plane that was restored from an older
    // copy may give an epoch out again.
    let newest =
        delivered.filter(is_same).fold(first, |newest, list| if list.epoch >= newest.epoch { list } else { newest });
    Some(intact.filter(is_same).fold(newest, |newest, list| if list.epoch > newest.epoch { list } else { newest }))
}

/// Karmada's name of this cluster: stored on the object, else configured for the agent, else written by Karmada.
#[must_use]
pub fn cluster_name<'a>(annotation: impl Fn(&str) -> Option<&'a str>, flag: Option<&'a str>) -> Option<&'a str> {
    annotation(CLUSTER_ANNOTATION)
        .or(flag)
        .or_else(|| annotation(WORK_NAMESPACE)?.strip_prefix("karmada-es-").filter(|name| !name.is_empty()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        agent::decide::fixtures::{list, report},
        fixtures::{zookeeper, zookeeper_spec},
        newer_list::of_newer_version,
        rollout::cluster_spec,
    };
    use mczk_api::{
        contract::{control_api::Mode, server_list::with_hash},
        zookeeper::{EnsemblePhase, ZooKeeperSpec, ZooKeeperStatus},
    };

    fn assigned() -> ZooKeeperSpec {
        let template = zookeeper_spec(json!({}));
        ZooKeeperSpec {
            ensemble: list(1, &[1, 2, 11]),
            ..cluster_spec::for_cluster(&template, "m1", 2, None, 0).unwrap()
        }
    }

    fn object_of(spec: &ZooKeeperSpec, managed: bool, observed: Option<&str>) -> ZooKeeper {
        let labels = managed.then(|| [(KARMADA_MANAGED_LABEL.to_owned(), "true".to_owned())].into());
        let status = ZooKeeperStatus { observed_spec_hash: observed.map(str::to_owned), ..ZooKeeperStatus::default() };
        let mut object: ZooKeeper = zookeeper(json!({}));
        (object.metadata.labels, object.spec, object.status) = (labels, spec.clone(), Some(status));
        object
    }

    fn acceptance_of(spec: &ZooKeeperSpec, cluster: Option<&str>, managed: bool, observed: Option<&str>) -> Acceptance {
        acceptance(&object_of(spec, managed, observed), &serde_json::to_value(spec).unwrap(), cluster, &[])
    }

    #[test]
    fn an_intact_spec_for_this_cluster_is_accepted() {
        assert_eq!(acceptance_of(&assigned(), Some("m1"), true, None), Acceptance::Accepted);
    }

    fn with_settings(entries: &Value, flags: &Value) -> ZooKeeperSpec {
        let template = zookeeper_spec(json!({ "template": { "zooCfg": entries, "jvmFlags": flags } }));
        ZooKeeperSpec {
            ensemble: list(1, &[1, 2, 11]),
            ..cluster_spec::for_cluster(&template, "m1", 2, None, 0).unwrap()
        }
    }

    /// The first voter stopped and did not come back.
    #[rstest]
    #[case::value(json!([{ "name": "tickTime", "value": "fast" }]), json!([]), json!([]), Some("tickTime: its value must be a whole number"))]
    #[case::together(json!([{ "name": "minSessionTimeout", "value": "50000" }]), json!([]), json!([]), Some("is above maxSessionTimeout 40000"))]
    #[case::name(json!([{ "name": "skipACL", "value": "yes" }]), json!([]), json!([]), Some("skipACL: mczk signs in"))]
    #[case::flag(json!([]), json!(["-Dznode.container.checkIntervalMs=soon"]), json!([]), Some("its value must be a whole number"))]
    #[case::digest(json!([{ "name": "digest.enabled", "value": "false" }]), json!([]), json!([]), Some("could not read the snapshots"))]
    #[case::default_digest(json!([{ "name": "digest.enabled", "value": "TRUE" }]), json!([]), json!([]), None)]
    #[case::no_extended_types(json!([]), json!([]), json!([{ "name": "extendedTypesEnabled", "value": "true" }]), Some("extendedTypesEnabled: it cannot be switched off"))]
    #[case::extended_types(json!([{ "name": "extendedTypesEnabled", "value": "true" }]), json!([]), json!([]), None)]
    fn settings_with_which_servers_would_not_start_are_refused(
        #[case] entries: Value,
        #[case] flags: Value,
        #[case] runs: Value,
        #[case] why: Option<&str>,
    ) {
        let spec = with_settings(&entries, &flags);
        let running: ServerConfig = serde_json::from_value(json!({
            "name": "zk", "cluster": "m1", "role": "voter", "revision": "r", "zooCfg": runs, "jvmFlags": [], "quorumTls": false,
        }))
        .unwrap();
        let stored = serde_json::to_value(&spec).unwrap();
        let of = |observed| {
            acceptance(&object_of(&spec, true, observed), &stored, Some("m1"), std::slice::from_ref(&running))
        };
        match (of(None), why) {
            (Acceptance::Refused(message), Some(why)) => assert!(message.contains(why), "{message}"),
            (accepted, why) => assert_eq!((accepted, why), (Acceptance::Accepted, None)),
        }
        assert_eq!(of(spec.spec_hash.as_deref()), Acceptance::Accepted, "it has been accepted before");
    }

    #[rstest]
    #[case::another_cluster(|s: &mut ZooKeeperSpec| s.cluster = Some("m2".into()), "meant for cluster m2")]
    #[case::changed(|s: &mut ZooKeeperSpec| s.replicas = 1, "spec is damaged: specHash does not match")]
    #[case::newer(|s: &mut ZooKeeperSpec| { s.render_version = 9; *s = ZooKeeperSpec { ensemble: s.ensemble.clone(), ..cluster_spec::for_cluster(s, "m1", 2, None, 0).unwrap() }; }, "This agent does not know renderVersion 9, only 1. Upgrade the agent")]
    #[case::older_than_any(|s: &mut ZooKeeperSpec| { s.render_version = 0; *s = ZooKeeperSpec { ensemble: s.ensemble.clone(), ..cluster_spec::for_cluster(s, "m1", 2, None, 0).unwrap() }; }, "Upgrade the operator")]
    #[case::list_changed(|s: &mut ZooKeeperSpec| s.ensemble.epoch = Some(9), "server list is damaged")]
    #[case::list_empty(|s: &mut ZooKeeperSpec| s.ensemble = with_hash(Ensemble { servers: vec![], ..s.ensemble.clone() }).unwrap(), "server list is damaged")]
    fn every_other_spec_is_refused(#[case] change: fn(&mut ZooKeeperSpec), #[case] why: &str) {
        let mut spec = assigned();
        change(&mut spec);
        let Acceptance::Refused(message) = acceptance_of(&spec, Some("m1"), true, None) else { panic!("accepted") };
        assert!(message.contains(why), "{message}");
    }

    /// The remedy works: after it, the agent accepts the spec.
    #[rstest]
    #[case::renamed(Some("old"), Some("m1"), true, "as old again", Some("old"), Some("m1"), "old")]
    #[case::wrong_flag(None, Some("old"), false, "Correct the agent's --cluster", None, Some("m1"), "m1")]
    #[case::wrong_flag_that_a_probe_kept(
        Some("old"),
        Some("old"),
        false,
        "remove the annotation",
        None,
        Some("m1"),
        "m1"
    )]
    fn a_wrong_name_of_the_cluster_has_a_remedy_that_works(
        #[case] kept: Option<&str>,
        #[case] flag: Option<&str>,
        #[case] accepted_before: bool,
        #[case] remedy: &str,
        #[case] kept_then: Option<&str>,
        #[case] flag_then: Option<&str>,
        #[case] meant_then: &str,
    ) {
        let answer = |kept: Option<&str>, flag: Option<&str>, meant: &str| {
            let template = zookeeper_spec(json!({}));
            let spec = ZooKeeperSpec {
                ensemble: list(1, &[1, 2, 11]),
                ..cluster_spec::for_cluster(&template, meant, 2, None, 0).unwrap()
            };
            let mut object = object_of(&spec, true, accepted_before.then_some("1-a"));
            object.metadata.annotations = kept.map(|name| [(CLUSTER_ANNOTATION.to_owned(), name.to_owned())].into());
            let annotation = |key: &str| object.annotations().get(key).map(String::as_str);
            acceptance(&object, &serde_json::to_value(&spec).unwrap(), cluster_name(annotation, flag), &[])
        };
        let Acceptance::Refused(why) = answer(kept, flag, "m1") else { panic!("accepted") };
        assert!(why.contains(remedy), "{why}");
        assert_eq!(answer(kept_then, flag_then, meant_then), Acceptance::Accepted);
    }

    #[rstest]
    #[case::spec_hash(|s: &mut ZooKeeperSpec| s.spec_hash = None)]
    #[case::cluster(|s: &mut ZooKeeperSpec| s.cluster = None)]
    #[case::list(|s: &mut ZooKeeperSpec| s.ensemble = Ensemble::default())]
    fn an_incomplete_spec_is_not_assigned(#[case] change: fn(&mut ZooKeeperSpec)) {
        let mut spec = assigned();
        change(&mut spec);
        assert_eq!(acceptance_of(&spec, Some("m1"), true, None), Acceptance::NotAssigned);
    }

    /// A control plane that was restored from an older copy sends its specs to all clusters at once.
    #[rstest]
    #[case::older("2-a", Acceptance::NotAssigned)]
    #[case::as_old("1-a", Acceptance::Accepted)]
    #[case::damaged("?", Acceptance::Accepted)]
    fn a_spec_older_than_the_accepted_one_is_not_assigned(#[case] accepted: &str, #[case] expected: Acceptance) {
        assert_eq!(acceptance_of(&assigned(), Some("m1"), true, Some(accepted)), expected);
    }

    /// A copy of the control plane from before the incarnation that lives here neither starts the former one nor ends this one.
    #[rstest]
    #[case::starts(EnsemblePhase::Running)]
    #[case::ends(EnsemblePhase::Abandoned)]
    #[case::decommissions(EnsemblePhase::Decommissioning)]
    fn a_list_of_a_former_incarnation_counts_no_more(#[case] phase: EnsemblePhase) {
        let mut spec = assigned();
        let incarnation = Some("old".to_owned());
        spec.ensemble = with_hash(Ensemble { incarnation, phase, ..spec.ensemble.clone() }).unwrap();
        let mut object = object_of(&spec, true, Some("1-a"));
        let living = |former: &str| {
            let former_incarnations = vec![former.to_owned()];
            Some(with_hash(Ensemble { former_incarnations, ..list(3, &[1, 2]) }).unwrap())
        };
        let stored = serde_json::to_value(&spec).unwrap();
        for (former, counts) in [("old", false), ("another", true)] {
            object.status.as_mut().unwrap().ensemble = living(former);
            let acceptance = acceptance(&object, &stored, Some("m1"), &[]);
            assert_eq!(acceptance == Acceptance::Accepted, counts);
            assert_eq!(list_counts(&object, &stored, &acceptance), counts, "{former}");
        }
    }

    #[test]
    fn without_karmada_only_the_spec_accepted_before_counts() {
        let spec = assigned();
        assert!(matches!(acceptance_of(&spec, Some("m1"), false, None), Acceptance::Refused(_)));
        assert_eq!(acceptance_of(&spec, Some("m1"), false, spec.spec_hash.as_deref()), Acceptance::Accepted);
        let mut by_hand = assigned();
        by_hand.ensemble = Ensemble::default();
        by_hand.spec_hash = None;
        assert!(matches!(acceptance_of(&by_hand, None, false, None), Acceptance::Refused(_)));
        assert!(matches!(acceptance_of(&spec, None, true, None), Acceptance::Refused(_)));
    }

    #[test]
    fn the_newer_list_of_the_same_incarnation_counts() {
        let (old, new) = (list(1, &[1]), list(2, &[1, 2]));
        assert_eq!(newest([&old, &new], &[]), Some(&new));
        assert_eq!(newest([&new, &old], &[]), Some(&new));
        let again = list(2, &[1, 3]);
        assert_eq!(newest([&again, &new], &[]), Some(&new), "the one that the agent accepted before");
        let other = with_hash(Ensemble { incarnation: Some("def".into()), epoch: Some(9), ..list(9, &[1]) }).unwrap();
        assert_eq!(newest([&old, &other], &[]), Some(&old));
        assert_eq!(newest(None, &[]), None);
    }

    /// M4: an agent that is older than the operator.
    #[test]
    fn a_list_of_a_newer_version_counts_as_it_arrived() {
        let newer = of_newer_version(&list(2, &[1, 2, 11]));
        let mut spec = serde_json::to_value(assigned()).unwrap();
        spec["ensemble"] = newer.clone();
        let labels = json!({ KARMADA_MANAGED_LABEL: "true" });
        let object: ZooKeeper =
            zookeeper(json!({ "metadata": { "labels": labels }, "spec": spec, "status": { "ensemble": newer } }));
        let accepted = acceptance(&object, &spec, Some("m1"), &[]);
        assert_eq!(accepted, Acceptance::Accepted);
        let delivered = delivered_lists(&object, &spec, &accepted);
        let as_json = |list: &Ensemble| serde_json::to_value(list).unwrap();
        assert_eq!(delivered.iter().map(|list| as_json(list)).collect::<Vec<_>>(), [newer.clone(), newer.clone()]);
        let published = of_newer_version(&list(3, &[1, 2, 11]));
        let mut view = serde_json::to_value(report(1, Mode::Leader, true)).unwrap();
        view["serverList"] = published.clone();
        let views = [serde_json::from_value(view).unwrap()];
        assert_eq!(newest(delivered, &views).map(as_json), Some(published));
    }

    /// M4: no agent acts upon a list that it does not understand.
    #[test]
    fn a_list_that_this_version_does_not_understand_is_refused() {
        let mut newer = of_newer_version(&list(2, &[1, 2, 11]));
        newer["phase"] = "Moving".into();
        newer["hash"] = server_list::hash_of(&newer).unwrap().into();
        let mut spec = serde_json::to_value(assigned()).unwrap();
        spec["ensemble"] = newer.clone();
        let labels = json!({ KARMADA_MANAGED_LABEL: "true" });
        let object: ZooKeeper = zookeeper(json!({ "metadata": { "labels": labels }, "spec": spec }));
        let Acceptance::Refused(why) = acceptance(&object, &spec, Some("m1"), &[]) else { panic!("accepted") };
        assert!(why.contains("Upgrade the agent"), "{why}");
        assert!(delivered_lists(&object, &spec, &Acceptance::Refused(why)).is_empty());
        let mut view = serde_json::to_value(report(1, Mode::Leader, true)).unwrap();
        newer["epoch"] = 9.into();
        view["serverList"] = newer;
        let (views, known) = ([serde_json::from_value(view).unwrap()], list(2, &[1, 2, 11]));
        assert_eq!(newest([&known], &views), Some(&known));
        assert!(newer_list(&known, &views).is_some());
        assert_eq!(newer_list(&list(9, &[1]), &views), None);
        assert!(not_understood(&object).is_some());
    }

    #[rstest]
    #[case(Some("a"), Some("b"), Some("karmada-es-c"), Some("a"))]
    #[case(None, Some("b"), Some("karmada-es-c"), Some("b"))]
    #[case(None, None, Some("karmada-es-c"), Some("c"))]
    #[case(None, None, Some("other"), None)]
    #[case(None, None, None, None)]
    fn cluster_names(
        #[case] stored: Option<&'static str>,
        #[case] flag: Option<&'static str>,
        #[case] work: Option<&'static str>,
        #[case] expected: Option<&str>,
    ) {
        let annotation = |key: &str| if key == CLUSTER_ANNOTATION { stored } else { work };
        assert_eq!(cluster_name(annotation, flag), expected);
    }
}
