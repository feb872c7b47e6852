//! Objects that the definition of `MultiClusterZooKeeper` accepts or refuses, as one table. `crds` checks it against the
//! rules alone, and `crds_apiserver` against a real API server.

use serde_json::{Value, json};

/// A change of an object: the JSON pointer of a field, and its new value; `null` removes the field.
pub type Edits = &'static [(&'static str, &'static str)];

/// Result of a write.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The object is stored.
    Accepted,
    /// A rule of the definition refuses the object with this message.
    Rule(&'static str),
    /// The schema refuses the object, and the API server's message contains this text. Only a real API server checks it.
    #[cfg_attr(test, allow(dead_code))]
    Schema(&'static str),
}

/// One object, or one change of an object.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Subject of the case.
    pub name: &'static str,
    /// Object that is stored before, as a change of [`base`]. None if the case is a creation.
    pub before: Option<Edits>,
    /// Object that is written then, as a change of the stored object, or of [`base`].
    pub write: Edits,
    /// Result of the write.
    pub outcome: Outcome,
}

/// The smallest object.
pub fn base() -> Value {
    json!({
        "apiVersion": "mczk.io/v1alpha1",
        "kind": "MultiClusterZooKeeper",
        "metadata": {"name": "ensemble", "namespace": "default"},
        "spec": {"replicas": 5, "template": {"image": "zookeeper:3.9.4", "storage": {"size": "10Gi"}}}
    })
}

/// The object with changes; missing objects on the way to a field are created.
pub fn edited(mut object: Value, edits: Edits) -> Value {
    for (pointer, text) in edits {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text} is not JSON: {e}"));
        let mut at = &mut object;
        let mut parts: Vec<_> = pointer.split('/').skip(1).collect();
        let last = parts.pop().unwrap();
        for part in parts {
            at = at.as_object_mut().unwrap().entry(part).or_insert_with(|| json!({}));
        }
        let fields = at.as_object_mut().unwrap();
        if value.is_null() {
            fields.remove(last);
        } else {
            fields.insert(last.to_owned(), value);
        }
    }
    object
}

impl Case {
    /// Object that is stored before, if any, and object that is written.
    pub fn objects(&self) -> (Option<Value>, Value) {
        let before = self.before.map(|edits| edited(base(), edits));
        let written = edited(before.clone().unwrap_or_else(base), self.write);
        (before, written)
    }
}

const fn creation(name: &'static str, write: Edits, outcome: Outcome) -> Case {
    Case { name, before: None, write, outcome }
}

const fn change(name: &'static str, before: Edits, write: Edits, outcome: Outcome) -> Case {
    Case { name, before: Some(before), write, outcome }
}

const NAME: &str = "metadata.name must be a DNS label of at most 40 characters that starts with a letter";
const MANAGED_SETTING: &str =
    "the operator manages this setting, or it has the prefix of a Java property: remove the setting or the prefix";
const FLAT: Edits = &[("/spec/network/mode", r#""Flat""#)];
const CUSTOM: Edits =
    &[("/spec/network/mode", r#""Custom""#), ("/spec/network/fqdnTemplate", r#""{pod}.{cluster}.example.org""#)];
const IDS: Edits = &[("/spec/network/clusterIds", r#"[{"cluster":"m1","id":"a"},{"cluster":"m2","id":"b"}]"#)];
const CLASS: Edits = &[("/spec/template/storage/storageClassName", r#""fast""#)];

/// Every rule of the definition with an object that it accepts and one that it refuses, and bounds that users meet.
pub const CASES: &[Case] = &[
    creation("the smallest object", &[], Outcome::Accepted),
    creation("an even number of voters", &[("/spec/replicas", "4")], Outcome::Accepted),
    creation("no voter", &[("/spec/replicas", "0")], Outcome::Schema("spec.replicas")),
    creation("too many voters", &[("/spec/replicas", "100")], Outcome::Schema("spec.replicas")),
    creation("no template", &[("/spec/template", "null")], Outcome::Schema("spec.template: Required value")),
    creation(
        "a name of 40 characters",
        &[("/metadata/name", r#""a234567890123456789012345678901234567890""#)],
        Outcome::Accepted,
    ),
    creation(
        "a name of 41 characters",
        &[("/metadata/name", r#""a2345678901234567890123456789012345678901""#)],
        Outcome::Rule(NAME),
    ),
    creation("a name that begins with a digit", &[("/metadata/name", r#""1a""#)], Outcome::Rule(NAME)),
    creation("a name with a dot", &[("/metadata/name", r#""a.b""#)], Outcome::Rule(NAME)),
    // Observers.
    creation(
        "254 servers",
        &[
            ("/spec/replicas", "99"),
            ("/spec/observers", r#"[{"cluster":"m1","count":99},{"cluster":"m2","count":56}]"#),
        ],
        Outcome::Accepted,
    ),
    creation(
        "255 servers",
        &[
            ("/spec/replicas", "99"),
            ("/spec/observers", r#"[{"cluster":"m1","count":99},{"cluster":"m2","count":57}]"#),
        ],
        Outcome::Rule("replicas and observers together can be at most 254"),
    ),
    creation(
        "two entries for one cluster's observers",
        &[("/spec/observers", r#"[{"cluster":"m1","count":1},{"cluster":"m1","count":2}]"#)],
        Outcome::Schema("Duplicate value"),
    ),
    // Placement.
    creation(
        "clusters by name, label and field, with weights",
        &[
            ("/spec/placement/clusterAffinity/clusterNames", r#"["m1","m2"]"#),
            ("/spec/placement/clusterAffinity/exclude", r#"["m3"]"#),
            ("/spec/placement/clusterAffinity/labelSelector/matchLabels", r#"{"tier":"gold"}"#),
            (
                "/spec/placement/clusterAffinity/fieldSelector/matchExpressions",
                r#"[{"key":"region","operator":"In","values":["eu"]}]"#,
            ),
            (
                "/spec/placement/replicaScheduling",
                r#"{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted","weightPreference":
                    {"staticWeightList":[{"targetCluster":{"clusterNames":["m1"]},"weight":2}]}}"#,
            ),
        ],
        Outcome::Accepted,
    ),
    creation(
        "groups of clusters",
        &[("/spec/placement/clusterAffinities", r#"[{"affinityName":"a","clusterNames":["m1"]}]"#)],
        Outcome::Rule("clusterAffinities is not supported"),
    ),
    creation(
        "spread constraints",
        &[("/spec/placement/spreadConstraints", r#"[{"spreadByField":"region","minGroups":2}]"#)],
        Outcome::Rule("spreadConstraints is not supported"),
    ),
    creation(
        "a field that Karmada does not know",
        &[(
            "/spec/placement/clusterAffinity/fieldSelector/matchExpressions",
            r#"[{"key":"city","operator":"In","values":["b"]}]"#,
        )],
        Outcome::Rule("fieldSelector supports the keys provider, region and zone"),
    ),
    creation(
        "an operator that fields do not have",
        &[(
            "/spec/placement/clusterAffinity/fieldSelector/matchExpressions",
            r#"[{"key":"zone","operator":"Exists"}]"#,
        )],
        Outcome::Rule("fieldSelector supports the keys provider, region and zone"),
    ),
    // Template.
    creation("a size as a number", &[("/spec/template/storage/size", "1000000000")], Outcome::Accepted),
    creation(
        "a size that is no quantity",
        &[("/spec/template/storage/size", r#""big""#)],
        Outcome::Schema("spec.template.storage.size"),
    ),
    change(
        "a volume grows, in another unit",
        &[],
        &[("/spec/template/storage/size", r#""10241Mi""#)],
        Outcome::Accepted,
    ),
    change(
        "a volume of the same size in another unit",
        &[],
        &[("/spec/template/storage/size", r#""10240Mi""#)],
        Outcome::Accepted,
    ),
    change(
        "a volume shrinks",
        &[],
        &[("/spec/template/storage/size", r#""9Gi""#)],
        Outcome::Rule("size can only grow"),
    ),
    change(
        "a volume shrinks to a number",
        &[],
        &[("/spec/template/storage/size", "1024")],
        Outcome::Rule("size can only grow"),
    ),
    change(
        "a storage class changes",
        CLASS,
        &[("/spec/template/storage/storageClassName", r#""slow""#)],
        Outcome::Rule("storageClassName cannot change"),
    ),
    change("a storage class is added", &[], CLASS, Outcome::Rule("storageClassName cannot change")),
    change(
        "a storage class is removed",
        CLASS,
        &[("/spec/template/storage/storageClassName", "null")],
        Outcome::Rule("storageClassName cannot change"),
    ),
    change("a storage class stays", CLASS, &[("/spec/replicas", "3")], Outcome::Accepted),
    creation(
        "settings of zoo.cfg",
        &[(
            "/spec/template/zooCfg",
            r#"[{"name":"tickTime","value":"2000"},{"name":"autopurge.purgeInterval","value":"1"}]"#,
        )],
        Outcome::Accepted,
    ),
    creation(
        "a managed setting",
        &[("/spec/template/zooCfg", r#"[{"name":"dataDir","value":"/tmp"}]"#)],
        Outcome::Rule(MANAGED_SETTING),
    ),
    creation(
        "a server in zoo.cfg",
        &[("/spec/template/zooCfg", r#"[{"name":"server.1","value":"x"}]"#)],
        Outcome::Rule(MANAGED_SETTING),
    ),
    creation(
        "a managed setting in one cluster",
        &[("/spec/overrides", r#"[{"cluster":"m1","zooCfg":[{"name":"ssl.quorum.keyStore.location","value":"/x"}]}]"#)],
        Outcome::Rule(MANAGED_SETTING),
    ),
    creation(
        "a setting twice",
        &[("/spec/template/zooCfg", r#"[{"name":"tickTime","value":"1"},{"name":"tickTime","value":"2"}]"#)],
        Outcome::Schema("Duplicate value"),
    ),
    creation(
        "a setting with a line break",
        &[("/spec/template/zooCfg", r#"[{"name":"tickTime","value":"1\ndataDir=/tmp"}]"#)],
        Outcome::Schema("spec.template.zooCfg[0].value"),
    ),
    creation(
        "labels of pods",
        &[("/spec/template/metadata/labels", r#"{"app.kubernetes.io/part-of":"x"}"#)],
        Outcome::Accepted,
    ),
    creation(
        "a reserved label",
        &[("/spec/template/metadata/labels", r#"{"mczk.io/cluster":"x"}"#)],
        Outcome::Rule("labels below mczk.io/"),
    ),
    creation(
        "an annotation of pods",
        &[("/spec/template/metadata/annotations", r#"{"example.org/a":"x"}"#)],
        Outcome::Accepted,
    ),
    creation(
        "a reserved annotation",
        &[("/spec/template/metadata/annotations", r#"{"mczk.io/cluster":"x"}"#)],
        Outcome::Rule("annotations below mczk.io/"),
    ),
    creation(
        "an affinity, passed on unchanged",
        &[(
            "/spec/template/scheduling/affinity",
            r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}"#,
        )],
        Outcome::Accepted,
    ),
    // Network.
    creation("each mode: Flat", FLAT, Outcome::Accepted),
    creation("each mode: Custom", CUSTOM, Outcome::Accepted),
    creation("an unknown mode", &[("/spec/network/mode", r#""Tunnel""#)], Outcome::Schema("spec.network.mode")),
    creation(
        "Custom without a template",
        &[("/spec/network/mode", r#""Custom""#)],
        Outcome::Rule("fqdnTemplate is required in mode Custom, and refused in any other mode"),
    ),
    creation(
        "a template in another mode",
        &[("/spec/network/fqdnTemplate", r#""{pod}.{cluster}.example.org""#)],
        Outcome::Rule("fqdnTemplate is required in mode Custom, and refused in any other mode"),
    ),
    creation(
        "a template that gives two clusters one name",
        &[("/spec/network/mode", r#""Custom""#), ("/spec/network/fqdnTemplate", r#""{pod}.example.org""#)],
        Outcome::Rule("fqdnTemplate must contain {pod}, and {cluster} or {clusterId}"),
    ),
    creation(
        "a template with an unknown placeholder",
        &[("/spec/network/mode", r#""Custom""#), ("/spec/network/fqdnTemplate", r#""{pod}.{cluster}.{zone}""#)],
        Outcome::Schema("spec.network.fqdnTemplate"),
    ),
    creation(
        "a domain in mode Custom",
        &[
            ("/spec/network/mode", r#""Custom""#),
            ("/spec/network/fqdnTemplate", r#""{pod}.{clusterId}.example.org""#),
            ("/spec/network/clusterDomain", r#""example.org""#),
        ],
        Outcome::Rule("clusterDomain is refused in mode Custom"),
    ),
    creation(
        "one domain for all clusters in mode Flat",
        &[("/spec/network/mode", r#""Flat""#), ("/spec/network/clusterDomain", r#""cluster.local""#)],
        Outcome::Rule("clusterDomain must contain {cluster} or {clusterId} in mode Flat"),
    ),
    creation(
        "a domain for each cluster in mode Flat",
        &[("/spec/network/mode", r#""Flat""#), ("/spec/network/clusterDomain", r#""{clusterId}.local""#)],
        Outcome::Accepted,
    ),
    change("a network is added", &[], FLAT, Outcome::Rule("network cannot be added or removed")),
    change(
        "a network is removed",
        FLAT,
        &[("/spec/network", "null")],
        Outcome::Rule("network cannot be added or removed"),
    ),
    change("the mode changes", FLAT, &[("/spec/network/mode", r#""MCS""#)], Outcome::Rule("mode cannot change")),
    change(
        "the template changes",
        CUSTOM,
        &[("/spec/network/fqdnTemplate", r#""{pod}.{clusterId}.example.org""#)],
        Outcome::Rule("fqdnTemplate cannot change"),
    ),
    change(
        "the domain is added",
        FLAT,
        &[("/spec/network/clusterDomain", r#""{cluster}.x""#)],
        Outcome::Rule("clusterDomain cannot change"),
    ),
    change(
        "a name of a cluster is added",
        IDS,
        &[(
            "/spec/network/clusterIds",
            r#"[{"cluster":"m3","id":"c"},{"cluster":"m2","id":"b"},{"cluster":"m1","id":"a"}]"#,
        )],
        Outcome::Accepted,
    ),
    change(
        "a name of a cluster changes",
        IDS,
        &[("/spec/network/clusterIds", r#"[{"cluster":"m1","id":"z"},{"cluster":"m2","id":"b"}]"#)],
        Outcome::Rule("clusterIds entries can be added, but not changed or removed"),
    ),
    change(
        "the names of clusters are removed",
        IDS,
        &[("/spec/network/clusterIds", "null")],
        Outcome::Rule("clusterIds entries can be added, but not changed or removed"),
    ),
    change("addresses of peers change", FLAT, &[("/spec/network/peerCIDRs", r#"["10.0.0.0/8"]"#)], Outcome::Accepted),
    creation(
        "an invalid address range",
        &[("/spec/network/peerCIDRs", r#"["everywhere"]"#)],
        Outcome::Schema("spec.network.peerCIDRs[0]"),
    ),
    // TLS.
    change(
        "encryption of the quorum is removed",
        &[],
        &[("/spec/tls/quorum", "false")],
        Outcome::Rule("quorum cannot change"),
    ),
    change("a default is written out", &[], &[("/spec/tls/quorum", "true")], Outcome::Accepted),
    change(
        "encryption towards clients is added",
        &[],
        &[("/spec/tls/client", r#"{"mode":"Optional","secretName":"zk-tls"}"#)],
        Outcome::Accepted,
    ),
    // Rollout.
    creation("as listed", &[("/spec/rollout", r#"{"order":"Listed","clusters":["m2","m1"]}"#)], Outcome::Accepted),
    creation(
        "clusters without order Listed",
        &[("/spec/rollout", r#"{"clusters":["m2"]}"#)],
        Outcome::Rule("clusters is required with order Listed"),
    ),
    creation(
        "order Listed without clusters",
        &[("/spec/rollout", r#"{"order":"Listed"}"#)],
        Outcome::Rule("clusters is required with order Listed"),
    ),
    creation(
        "a cluster listed twice",
        &[("/spec/rollout", r#"{"order":"Listed","clusters":["m2","m2"]}"#)],
        Outcome::Schema("Duplicate value"),
    ),
    creation(
        "a negative hold",
        &[("/spec/rollout", r#"{"holdSeconds":-1}"#)],
        Outcome::Schema("spec.rollout.holdSeconds"),
    ),
    creation(
        "an unknown reaction to failure",
        &[("/spec/rollout", r#"{"onFailure":"Ignore"}"#)],
        Outcome::Schema("spec.rollout.onFailure"),
    ),
    // Overrides.
    creation(
        "every field of an override",
        &[(
            "/spec/overrides",
            r#"[{"cluster":"m1","image":"mirror/zookeeper:3.9.4","resources":{"limits":{"memory":"1Gi"}},
                "storageClassName":"fast","nodeSelector":{"disk":"nvme"},"tolerations":[{"operator":"Exists"}],
                "zooCfg":[{"name":"tickTime","value":"3000"}],"jvmFlags":["-Xlog:gc"]}]"#,
        )],
        Outcome::Accepted,
    ),
    creation(
        "two overrides of a cluster",
        &[("/spec/overrides", r#"[{"cluster":"m1"},{"cluster":"m1"}]"#)],
        Outcome::Schema("Duplicate value"),
    ),
    creation(
        "a history that is too long",
        &[("/spec/recordHistoryLimit", "51")],
        Outcome::Schema("spec.recordHistoryLimit"),
    ),
];
