//! The worlds: those that are searched completely, and larger ones for random walks.

use mczk_api::multiclusterzookeeper::MultiClusterZooKeeperSpec;
use serde_json::{Value, json};

use crate::{
    Says, Setup,
    faults::Fault::{
        self, Asleep, ClusterExcluded, ControlPlaneLost, Deadline, Deposed, Disconnect, EmptySchedule, Evict,
        ListEdited, Lose, LoseVolume, OlderCopy, OverridesDeleted, PolicyDeleted, RuleAdded, Second, Slow, SpecEdited,
        StatusWiped, TemplateDeleted, TemplateEdited, TemplatePurged, TemplateScaled, Unjoin, Unpreserved, Unregister,
        WorkDeleted,
    },
    member::BAD_IMAGE,
};

fn spec(replicas: i32, image: &str, more: Value) -> MultiClusterZooKeeperSpec {
    let mut spec = json!({
        "replicas": replicas,
        "template": { "image": image, "storage": { "size": "1Gi" } },
        "recordHistoryLimit": 2,
        // The check adds states and no rule: `src/rules/tests/record_rules` has its cases.
        "network": { "mode": "MCS", "preflight": "Skip" },
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    serde_json::from_value(spec).expect("a spec of the model is one")
}

const V1: &str = "zookeeper:1";
const V2: &str = "zookeeper:2";
const V3: &str = "zookeeper:3";

fn plain(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({}))
}

fn without_c(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "placement": { "clusterAffinity": { "exclude": ["c"] } } }))
}

fn only_a(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "placement": { "clusterAffinity": { "clusterNames": ["a"] } } }))
}

fn continuing(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    spec(replicas, image, json!({ "rollout": { "onFailure": "Continue" } }))
}

/// A world of three clusters in which the first spec is rolled out before the search begins.
fn world(name: &'static str, specs: &[MultiClusterZooKeeperSpec], kinds: &[Fault]) -> Setup {
    let (specs, kinds) = (specs.to_vec(), kinds.to_vec());
    Setup { name, specs, clusters: 3, running: true, faults: 2, kinds, ..Setup::default() }
}

/// A world in which the search begins before the first deployment.
fn first(name: &'static str, specs: &[MultiClusterZooKeeperSpec], kinds: &[Fault]) -> Setup {
    Setup { running: false, ..world(name, specs, kinds) }
}

/// All worlds that are searched completely.
pub fn all() -> Vec<Setup> {
    let usual = [first_deployments(), new_images(), other_changes(), ends()].concat();
    [usual, edits(), unjoined_clusters(), late_operators(), lost_control_planes()].concat()
}

fn first_deployments() -> Vec<Setup> {
    vec![
        first("first deployment, crashes", &[plain(5, V1)], &[Slow]),
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            ..first("first deployment, crashes, in every order", &[plain(3, V1)], &[Slow])
        },
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            late_kinds: vec![1],
            late_secret: vec![0],
            ..first("first deployment, late kinds and secret", &[plain(3, V1)], &[Slow, Lose(1)])
        },
        Setup {
            clusters: 2,
            faults: 1,
            late: true,
            ..first("first deployment, Karmada's faults", &[plain(1, V1)], &[Unregister, EmptySchedule, WorkDeleted(0)])
        },
        Setup {
            faults: 1,
            ..first("first deployment, scaled meanwhile", &[plain(3, V1), plain(5, V1)], &[Deadline, Lose(1), Evict(1)])
        },
        Setup {
            gone: vec![1],
            abandoned: vec![1],
            ..first(
                "first deployment, rebootstrapped elsewhere",
                &[plain(3, V1), only_a(3, V1)],
                &[Lose(1), Disconnect(2)],
            )
        },
        Setup {
            clusters: 2,
            gone: vec![1],
            abandoned: vec![1],
            ..first("first deployment, a cluster abandoned", &[plain(2, V1), plain(2, V1)], &[Lose(1), Slow])
        },
        Setup {
            clusters: 2,
            ..first(
                "first deployment, rebootstrapped elsewhere, crashes",
                &[plain(2, V1), only_a(1, V1)],
                &[Slow, Disconnect(1)],
            )
        },
        Setup {
            clusters: 2,
            ..first(
                "first deployment, rebootstrapped elsewhere, memory lost",
                &[plain(2, V1), only_a(1, V1)],
                &[Disconnect(1), StatusWiped, OverridesDeleted],
            )
        },
        first("first deployment, continued without a cluster", &[continuing(3, V1)], &[Disconnect(1), Disconnect(2)]),
        first("first deployment, memory lost", &[plain(3, V1)], &[StatusWiped, OverridesDeleted, PolicyDeleted]),
    ]
}

fn new_images() -> Vec<Setup> {
    vec![
        Setup { late: true, ..world("new image, crashes", &[plain(5, V1), plain(5, V2)], &[Slow]) },
        world("new image, clusters lost", &[plain(3, V1), plain(3, V2)], &[Lose(0), Lose(1), Disconnect(2)]),
        world(
            "new image, continued without a cluster",
            &[continuing(3, V1), continuing(3, V2)],
            &[Disconnect(0), Lose(1)],
        ),
        Setup {
            faults: 1,
            late: true,
            ..world(
                "a second image while one rolls",
                &[plain(3, V1), plain(3, V2), plain(3, V3)],
                &[Slow, Deadline, Disconnect(1)],
            )
        },
        Setup {
            clusters: 2,
            late: true,
            ..world(
                "a second image, and back, while one rolls",
                &[plain(3, V1), plain(3, V2), plain(3, V1)],
                &[Deadline],
            )
        },
        Setup {
            faults: 1,
            late: true,
            ..world(
                "an image that fails, then one that works",
                &[plain(3, V1), plain(3, BAD_IMAGE), plain(3, V3)],
                &[Slow, Deadline],
            )
        },
        Setup {
            faults: 1,
            late: true,
            ..world(
                "new image, Karmada's faults",
                &[plain(3, V1), plain(3, V2)],
                &[Unregister, EmptySchedule, WorkDeleted(1)],
            )
        },
        Setup { faults: 1, ..world("new image, an eviction", &[plain(5, V1), plain(5, V2)], &[Evict(1), Evict(2)]) },
        world("new image, memory lost", &[plain(3, V1), plain(3, V2)], &[StatusWiped, OverridesDeleted, PolicyDeleted]),
        Setup {
            gone: vec![2],
            ..world(
                "a cluster lost for good while an image rolls",
                &[plain(3, V1), plain(3, V2), without_c(3, V2)],
                &[Lose(2), Deadline, Slow],
            )
        },
        Setup {
            clusters: 2,
            ..world("one voter, two images", &[plain(1, V1), plain(1, V2), plain(1, V3)], &[Slow, Disconnect(0)])
        },
        world(
            "two images of five, a cluster cut off",
            &[plain(5, V1), plain(5, V2), plain(5, V3)],
            &[Disconnect(2), Deadline],
        ),
        world("new image of five, memory lost", &[plain(5, V1), plain(5, V2)], &[StatusWiped, OverridesDeleted]),
    ]
}

fn other_changes() -> Vec<Setup> {
    vec![
        Setup {
            faults: 1,
            ..world("fewer servers", &[plain(5, V1), plain(3, V1)], &[Slow, Lose(1), OverridesDeleted, Evict(0)])
        },
        Setup {
            faults: 1,
            ..world("more servers", &[plain(3, V1), plain(5, V1)], &[Slow, WorkDeleted(0), StatusWiped])
        },
        Setup {
            faults: 1,
            ..world(
                "more servers, and back, while they join",
                &[plain(3, V1), plain(5, V1), plain(3, V1)],
                &[Deadline, Slow],
            )
        },
        world("more servers, clusters lost", &[plain(3, V1), plain(5, V1)], &[Lose(0), Lose(1)]),
        world("fewer servers, clusters lost", &[plain(5, V1), plain(3, V1)], &[Lose(1), Lose(2)]),
        Setup {
            faults: 1,
            ..world("away from a cluster", &[plain(3, V1), without_c(3, V1)], &[Slow, Lose(2), OverridesDeleted])
        },
        Setup {
            faults: 1,
            ..world(
                "away from a cluster, and back",
                &[plain(3, V1), without_c(3, V1), plain(3, V1)],
                &[Slow, Lose(2), Deadline],
            )
        },
        Setup { faults: 1, ..world("to another cluster", &[without_c(3, V1), plain(3, V2)], &[Slow, WorkDeleted(1)]) },
        Setup {
            clusters: 4,
            faults: 1,
            ..world(
                "fewer here first, and to other clusters",
                &[
                    spec(3, V1, json!({ "placement": { "clusterAffinity": { "exclude": ["c", "d"] } } })),
                    spec(
                        3,
                        V2,
                        json!({
                            "placement": { "clusterAffinity": { "exclude": ["b"] } },
                            "rollout": { "order": "Listed", "clusters": ["a", "c", "d"] },
                        }),
                    ),
                ],
                &[Slow, Deadline, StatusWiped],
            )
        },
        world("a lost volume", &[plain(3, V1)], &[LoseVolume(0), Slow, WorkDeleted(0)]),
        Setup {
            replaces: true,
            ..world(
                "a volume is replaced, a cluster lost",
                &[plain(3, V1), plain(3, V1)],
                &[Lose(1), LoseVolume(1), Slow, StatusWiped],
            )
        },
        Setup {
            replaces: true,
            ..world("a volume is replaced while an image rolls", &[plain(3, V1), plain(3, V2)], &[Slow, TemplateEdited])
        },
    ]
}

fn ends() -> Vec<Setup> {
    vec![
        Setup { deleted: true, ..world("an end", &[plain(5, V1)], &[Slow, Lose(1)]) },
        Setup { deleted: true, ..world("an end, memory lost", &[plain(3, V1)], &[StatusWiped, OverridesDeleted]) },
        Setup {
            faults: 1,
            deleted: true,
            ..world("an end while a change rolls", &[plain(3, V1), plain(3, V2)], &[Slow, OverridesDeleted, Unregister])
        },
        Setup {
            deleted: true,
            faults: 1,
            ..world("an end, away from a lost cluster", &[plain(3, V1), without_c(3, V1)], &[Lose(2)])
        },
        Setup { deleted: true, foreign: true, ..first("a foreign template", &[plain(3, V1), plain(3, V2)], &[Slow]) },
    ]
}

/// The user says how Karmada divides the voters.
fn weighted(replicas: i32, image: &str) -> MultiClusterZooKeeperSpec {
    let weight = |name: &str| json!({ "targetCluster": { "clusterNames": [name] }, "weight": 1 });
    let weights = ["a", "b", "c"].map(weight);
    let scheduling = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "staticWeightList": weights },
    });
    spec(replicas, image, json!({ "placement": { "replicaScheduling": scheduling } }))
}

/// A hand edits or deletes what the operator owns.
fn edits() -> Vec<Setup> {
    let images = [plain(3, V1), plain(3, V2)];
    let worlds = vec![
        world("new image, edited policies", &images, &[ClusterExcluded(1), RuleAdded(1), SpecEdited(1), ListEdited]),
        world("declared weights, an edited policy", &[weighted(3, V1), weighted(3, V2)], &[ClusterExcluded(1)]),
        Setup { clusters: 2, late: true, ..world("new image, an edited template", &images, &[TemplateEdited]) },
        world("new image, a scaled template", &images, &[TemplateScaled]),
        Setup {
            clusters: 2,
            late: true,
            ..world("new image, the template deleted", &images, &[TemplateDeleted, TemplatePurged])
        },
        Setup {
            deleted: true,
            ..world(
                "an end, edited and deleted objects",
                &[plain(3, V1)],
                &[
                    ClusterExcluded(1),
                    Unpreserved,
                    RuleAdded(1),
                    ListEdited,
                    TemplateScaled,
                    TemplateDeleted,
                    TemplatePurged,
                ],
            )
        },
        Setup {
            clusters: 2,
            ..first(
                "first deployment, the template edited or deleted",
                &images,
                &[TemplateEdited, TemplateDeleted, TemplatePurged],
            )
        },
    ];
    worlds.into_iter().map(|world| Setup { faults: 1, ..world }).collect()
}

/// A cluster leaves the federation, and joins it again with its old servers.
fn unjoined_clusters() -> Vec<Setup> {
    let worlds = vec![
        world("new image, a cluster unjoined", &[plain(3, V1), plain(3, V2)], &[Unjoin(1)]),
        world("away from an unjoined cluster", &[plain(3, V1), without_c(3, V1)], &[Unjoin(2)]),
        Setup {
            clusters: 2,
            late: true,
            ..first("first deployment, a cluster unjoined", &[plain(2, V1)], &[Unjoin(1)])
        },
        Setup { deleted: true, ..world("an end, a cluster unscheduled", &[plain(3, V1)], &[Unjoin(1), Evict(1)]) },
    ];
    worlds.into_iter().map(|world| Setup { faults: 1, ..world }).collect()
}

/// Two operators act at once, or one wakes up late.
fn late_operators() -> Vec<Setup> {
    let images = [plain(3, V1), plain(3, V2)];
    vec![
        Setup { faults: 1, ..world("new image, two operators", &images, &[Second]) },
        Setup { clusters: 2, ..world("new image, two operators, both slow", &images, &[Second, Deposed]) },
        Setup {
            clusters: 2,
            faults: 1,
            ..first("first deployment, two operators", &[plain(3, V1), plain(3, V2)], &[Second])
        },
        world("new image, lost wake-ups", &images, &[Asleep, Disconnect(1)]),
        Setup {
            clusters: 2,
            faults: 1,
            ..world("an image that fails, lost wake-ups", &[plain(3, V1), plain(3, BAD_IMAGE), plain(3, V3)], &[Asleep])
        },
    ]
}

/// The control plane is lost while servers run, and the user creates the object again.
fn lost_control_planes() -> Vec<Setup> {
    let faults = [ControlPlaneLost, Disconnect(1), Lose(2), Slow];
    vec![
        Setup { says: Some(Says::Adopt), ..world("a lost control plane, adopted", &[plain(3, V1)], &faults) },
        Setup {
            says: Some(Says::Adopt),
            faults: 1,
            ..world(
                "a lost control plane while an image rolls, adopted",
                &[plain(3, V1), plain(3, V2)],
                &[ControlPlaneLost],
            )
        },
        Setup { says: Some(Says::Over), ..world("a lost control plane, declared over", &[plain(3, V1)], &faults) },
        world("an older copy, fewer servers since", &[plain(5, V1), plain(3, V1)], &[OlderCopy, Disconnect(1)]),
        Setup {
            faults: 1,
            ..world("an older copy, more servers and an image since", &[plain(3, V1), plain(5, V2)], &[OlderCopy])
        },
    ]
}

/// Worlds that are too large for a search: five clusters, nine voters, two changes and many kinds of faults.
pub fn large() -> Vec<Setup> {
    let specs = [plain(9, V1), plain(9, V2), plain(9, V3)];
    let memory = [
        Slow,
        StatusWiped,
        OverridesDeleted,
        PolicyDeleted,
        Disconnect(4),
        Lose(2),
        WorkDeleted(1),
        Unregister,
        EmptySchedule,
    ];
    let worlds = [
        first(
            "first deployment of nine",
            &specs[..2],
            &[Slow, Lose(1), Disconnect(3), WorkDeleted(0), Unregister, EmptySchedule, PolicyDeleted],
        ),
        world(
            "nine, two changes",
            &specs,
            &[Slow, Deadline, Lose(2), Disconnect(4), PolicyDeleted, WorkDeleted(1), Unregister, EmptySchedule],
        ),
        world("nine, two changes, memory lost", &specs, &memory),
        first(
            "first deployment of nine, memory lost",
            &specs[..2],
            &[Slow, StatusWiped, OverridesDeleted, Disconnect(4), Unregister, EmptySchedule],
        ),
        world(
            "nine, to five, to seven",
            &[plain(9, V1), plain(5, V1), plain(7, V2)],
            &[Slow, Lose(2), WorkDeleted(1), PolicyDeleted],
        ),
    ];
    let worlds = worlds.into_iter().chain(large_with_hands());
    let walks = |world| Setup { clusters: 5, faults: 6, late: true, ..world };
    worlds.map(walks).collect()
}

/// Larger worlds with edited objects, clusters that leave the federation, and two operators.
fn large_with_hands() -> [Setup; 2] {
    let specs = [plain(9, V1), plain(9, V2), plain(9, V3)];
    let edits =
        [ClusterExcluded(1), RuleAdded(2), SpecEdited(3), ListEdited, TemplateEdited, TemplateScaled, TemplateDeleted];
    let others = [TemplatePurged, Second, Unjoin(2), Unjoin(4), Asleep, Deadline, Disconnect(3), OverridesDeleted];
    [
        world("nine, two changes, edited objects", &specs, &[&edits[..], &[Second, Lose(2), Unregister]].concat()),
        world("nine, two changes, clusters unjoined, two operators", &specs, &[&others[..], &edits[..1]].concat()),
    ]
}
