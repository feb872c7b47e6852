//! Objects that the definition of `MultiClusterZooKeeper` accepts or refuses, as one table. `crds` checks it against the
//! rules alone, and `crds_apiserver` against a real API server.

use Outcome::{Accepted, Rule, Schema};
use mczk_api::yaml;
use serde_json::{Value, json};

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

/// One object, or one change of an object. Both are merge patches of a spec, in YAML.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Subject of the case.
    pub name: &'static str,
    /// Name of the object.
    object: &'static str,
    /// Spec that is stored before, as a change of [`base`]. None if the case is a creation.
    pub before: Option<&'static str>,
    /// Spec that is written then, as a change of the stored object, or of [`base`].
    write: &'static str,
    /// Result of the write.
    pub outcome: Outcome,
}

/// The smallest object.
pub fn base() -> Value {
    json!({
        "apiVersion": "mczk.io/v1alpha1",
        "kind": "MultiClusterZooKeeper",
        "metadata": {"name": OBJECT, "namespace": "default"},
        "spec": {"replicas": 5, "template": {"image": "zookeeper:3.9.4", "storage": {"size": "10Gi"}}}
    })
}

fn patched(mut object: Value, patch: &str) -> Value {
    let patches = yaml::read(patch).unwrap_or_else(|e| panic!("{patch} is not YAML: {e}"));
    let [patch] = patches.as_slice() else { panic!("{patch} is not one document") };
    json_patch::merge(&mut object["spec"], patch);
    object
}

impl Case {
    /// Object that is stored before, if any, and object that is written.
    pub fn objects(&self) -> (Option<Value>, Value) {
        let mut base = base();
        base["metadata"]["name"] = json!(self.object);
        let before = self.before.map(|patch| patched(base.clone(), patch));
        let written = patched(before.clone().unwrap_or(base), self.write);
        (before, written)
    }
}

const OBJECT: &str = "ensemble";

const fn named(name: &'static str, object: &'static str, outcome: Outcome) -> Case {
    Case { name, object, before: None, write: "{}", outcome }
}

const fn creation(name: &'static str, write: &'static str, outcome: Outcome) -> Case {
    Case { name, object: OBJECT, before: None, write, outcome }
}

/// A refused setting.
macro_rules! setting {
    ($name:literal, $setting:literal, $why:expr) => {
        creation($name, concat!("template: {zooCfg: [{name: ", $setting, ", value: x}]}"), Rule($why))
    };
}

/// A refused flag.
macro_rules! flag {
    ($name:literal, $flag:literal, $why:expr) => {
        creation($name, concat!("template: {jvmFlags: ['", $flag, "']}"), Rule($why))
    };
}

const fn change(name: &'static str, before: &'static str, write: &'static str, outcome: Outcome) -> Case {
    Case { name, object: OBJECT, before: Some(before), write, outcome }
}

const NAME: &str = "metadata.name must be a DNS label of at most 40 characters that starts with a letter";
const MANAGED_SETTING: &str = "the operator manages this setting: remove it";
const QUORUM_TLS: &str = "the operator manages TLS between servers: set tls.quorum";
const TLS_STEP: &str = "client.mode Required cannot be added or removed in one step";
const EQUAL: &str = "this setting must be equal in all clusters";
const NO_FLAG: &str = "a flag is one option with its value";
const KEYS: &str = "a key is a name of at most 63 letters";
const TOLERATION: &str = "operator Exists has no value, and a toleration without a key needs it";
const FLAT: &str = "network: {mode: Flat}";
const CUSTOM: &str = "network: {mode: Custom, fqdnTemplate: '{pod}.{cluster}.example.org'}";
const IDS: &str = "network: {clusterIds: [{cluster: m1, id: a}, {cluster: m2, id: b}]}";
const SMALLER: &str = "spec.template.storage.size can only grow";
const TTL: &str = "template: {zooCfg: [{name: extendedTypesEnabled, value: 'true'}]}";
const NO_DIGEST: &str = "template: {zooCfg: [{name: digest.enabled, value: 'false'}]}";
const DIGEST: &str = "template: {zooCfg: [{name: digest.enabled, value: 'TRUE'}]}";
const NEVER_DIGEST: &str = "digest.enabled: it cannot change after the creation";
const CLASS: &str = "template: {storage: {storageClassName: fast}}";

/// Every rule of the definition with an object that it accepts and one that it refuses, and bounds that users meet.
pub const CASES: &[Case] = &[
    creation("the smallest object", "{}", Accepted),
    creation("an even number of voters", "replicas: 4", Accepted),
    creation("no voter", "replicas: 0", Schema("spec.replicas")),
    creation("too many voters", "replicas: 100", Schema("spec.replicas")),
    creation("no template", "template: null", Schema("spec.template: Required value")),
    named("a name of 40 characters", "a234567890123456789012345678901234567890", Accepted),
    named("a name of 41 characters", "a2345678901234567890123456789012345678901", Rule(NAME)),
    named("a name that begins with a digit", "1a", Rule(NAME)),
    named("a name with a dot", "a.b", Rule(NAME)),
    // Observers.
    creation(
        "254 servers",
        "{replicas: 99, observers: [{cluster: m1, count: 99}, {cluster: m2, count: 56}]}",
        Accepted,
    ),
    creation(
        "255 servers",
        "{replicas: 99, observers: [{cluster: m1, count: 99}, {cluster: m2, count: 57}]}",
        Rule("replicas and observers together can be at most 254"),
    ),
    creation(
        "two entries for one cluster's observers",
        "observers: [{cluster: m1, count: 1}, {cluster: m1, count: 2}]",
        Schema("Duplicate value"),
    ),
    // Placement.
    creation(
        "clusters by name, label and field, with weights",
        "placement:
           clusterAffinity:
             {clusterNames: [m1, m2], exclude: [m3], labelSelector: {matchLabels: {tier: gold}},
              fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}
           replicaScheduling:
             {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted,
              weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m1]}, weight: 2}]}}",
        Accepted,
    ),
    creation(
        "groups of clusters",
        "placement: {clusterAffinities: [{affinityName: a, clusterNames: [m1]}]}",
        Rule("clusterAffinities is not supported"),
    ),
    creation(
        "spares",
        "placement: {clusterAffinity: {clusterNames: [m1, m2]}}
failover: {demoteAfterSeconds: 60, spares: [m4, m5], moveAfterSeconds: 900, moveBackAfterSeconds: 3600}",
        Accepted,
    ),
    creation("spares that only an annotation uses", "failover: {spares: [m4]}", Accepted),
    creation(
        "a spare that placement names",
        "placement: {clusterAffinity: {clusterNames: [m1, m2]}}\nfailover: {spares: [m4, m2]}",
        Rule("failover.spares names a cluster of placement"),
    ),
    creation(
        "a spare without servers",
        "network: {mode: MCS, importClusters: [m4]}\nfailover: {spares: [m4]}",
        Rule("failover.spares names a cluster of network.importClusters"),
    ),
    creation(
        "a move without spares",
        "failover: {moveAfterSeconds: 900}",
        Rule("moveAfterSeconds and moveBackAfterSeconds need spares"),
    ),
    creation(
        "a move back without spares",
        "failover: {moveBackAfterSeconds: 900, spares: []}",
        Rule("moveAfterSeconds and moveBackAfterSeconds need spares"),
    ),
    creation("a spare twice", "failover: {spares: [m4, m4]}", Schema("Duplicate value")),
    creation("a hasty move", "failover: {spares: [m4], moveAfterSeconds: 59}", Schema("greater than or equal to 60")),
    creation(
        "spread constraints",
        "placement: {spreadConstraints: [{spreadByField: region, minGroups: 2}]}",
        Rule("spreadConstraints is not supported"),
    ),
    creation(
        "a field that Karmada does not know",
        "placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: city, operator: In, values: [b]}]}}}",
        Rule("fieldSelector supports the keys provider, region and zone"),
    ),
    creation(
        "an operator that fields do not have",
        "placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}}",
        Rule("fieldSelector supports the keys provider, region and zone"),
    ),
    // Template.
    creation("a size as a number", "template: {storage: {size: 1000000000}}", Accepted),
    creation("a size that is no quantity", "template: {storage: {size: big}}", Schema("spec.template.storage.size")),
    change("a volume grows, in another unit", "{}", "template: {storage: {size: '10241Mi'}}", Accepted),
    change("a volume of the same size in another unit", "{}", "template: {storage: {size: '10240Mi'}}", Accepted),
    change("a volume shrinks", "{}", "template: {storage: {size: '9Gi'}}", Rule(SMALLER)),
    change("a volume shrinks to a number", "{}", "template: {storage: {size: 1024}}", Rule(SMALLER)),
    change(
        "a storage class changes",
        CLASS,
        "template: {storage: {storageClassName: slow}}",
        Rule("storageClassName cannot change"),
    ),
    change("a storage class is added", "{}", CLASS, Rule("storageClassName cannot change")),
    change(
        "a storage class is removed",
        CLASS,
        "template: {storage: {storageClassName: null}}",
        Rule("storageClassName cannot change"),
    ),
    change("a storage class stays", CLASS, "replicas: 3", Accepted),
    creation(
        "settings of zoo.cfg",
        "template: {zooCfg: [{name: tickTime, value: '2000'}, {name: autopurge.purgeInterval, value: '1'}]}",
        Accepted,
    ),
    creation("a managed setting", "template: {zooCfg: [{name: dataDir, value: /tmp}]}", Rule(MANAGED_SETTING)),
    creation("a server in zoo.cfg", "template: {zooCfg: [{name: server.1, value: x}]}", Rule(MANAGED_SETTING)),
    creation(
        "a managed setting in one cluster",
        "overrides: [{cluster: m1, zooCfg: [{name: ssl.quorum.keyStore.location, value: /x}]}]",
        Rule(QUORUM_TLS),
    ),
    setting!("tls for clients", "ssl.keyStore.location", "the operator manages TLS of clients: set tls.client"),
    setting!("kerberos between servers", "quorum.auth.enableSasl", "servers authenticate each other by tls.quorum"),
    setting!("no sync", "forceSync", "acknowledged writes could be lost"),
    setting!("nodes of ZooKeeper 3.5.3", "emulate353TTLNodes", "it is for data of ZooKeeper 3.5.3"),
    setting!("an oracle", "oraclePath", "a session would no longer prove that a quorum serves"),
    setting!("no access control", "skipACL", "mczk signs in with a digest of its own"),
    setting!("a password", "SASLAuthenticationProvider.superPassword", "a spec is no place for a password"),
    setting!("a port for observers", "observerMasterPort", "mczk gives each server one address"),
    setting!("the web server of ZooKeeper", "admin.serverPort", "the operator manages this setting"),
    setting!("a setting of clients", "client.secure", "it has no effect on a server of mczk"),
    setting!("the second limit of a request", "jute.maxbuffer.extrasize", "it follows jute.maxbuffer"),
    setting!("a property of Java", "leader.nodelay", "Java reads it by its name alone: set it in jvmFlags"),
    setting!("no number", "tickTime", "its value must be a whole number"),
    setting!("neither true nor false", "digest.enabled", "its value must be true or false"),
    setting!("no share", "pathStats.sampleRate", "its value must be a number above 0"),
    setting!("a misspelt setting", "tickTimes", "no setting of ZooKeeper 3.9 has this name"),
    setting!(
        "a setting with the prefix of a property",
        "zookeeper.skipACL",
        "no setting of ZooKeeper 3.9 has this name"
    ),
    creation(
        "the limit of a request, and an authentication provider",
        "template: {zooCfg: [{name: jute.maxbuffer, value: '4194304'}, {name: authProvider.sasl, value: x}]}",
        Accepted,
    ),
    creation("flags", "template: {jvmFlags: [-Xmx1g, -Dzookeeper.of.a.plugin=9, -Dserver.port=1, -Dx, -ea]}", Accepted),
    flag!("a file of flags", "@/tmp/flags", NO_FLAG),
    flag!("another program", "-jar", NO_FLAG),
    flag!("a command at the end", "-XX:OnOutOfMemoryError=sleep 9", NO_FLAG),
    flag!("a managed setting as a flag", "-Dzookeeper.db.autocreate=true", MANAGED_SETTING),
    flag!("a managed group of settings as a flag", "-Dzookeeper.ssl.quorum.protocol=x", QUORUM_TLS),
    flag!("other names", "-Djdk.net.hosts.file=/x", "the operator manages how Java resolves names"),
    flag!("another log", "-Dlogback.configurationFile=/x", "mczk reads the log on standard output"),
    flag!("a setting of zoo.cfg as a flag", "-Dzookeeper.tickTime=1", "a flag is the wrong place"),
    flag!("the limit of a request as a flag", "-Djute.maxbuffer=4194304", "a flag is the wrong place"),
    creation(
        "a limit in one cluster",
        "overrides: [{cluster: m1, zooCfg: [{name: jute.maxbuffer, value: '4194304'}]}]",
        Rule(EQUAL),
    ),
    creation(
        "a provider in one cluster",
        "overrides: [{cluster: m1, zooCfg: [{name: authProvider.x, value: 'y'}]}]",
        Rule(EQUAL),
    ),
    creation(
        "fewer connections than mczk needs",
        "template: {zooCfg: [{name: maxCnxns, value: '2'}]}",
        Rule("its value must be 0, for no limit"),
    ),
    creation("no limit of connections", "template: {zooCfg: [{name: maxCnxns, value: '0'}]}", Accepted),
    creation("a load of one cluster", "overrides: [{cluster: m1, zooCfg: [{name: snapCount, value: '9'}]}]", Accepted),
    creation(
        "a setting twice",
        "template: {zooCfg: [{name: tickTime, value: '2000'}, {name: tickTime, value: '3000'}]}",
        Schema("Duplicate value"),
    ),
    creation(
        "a setting with a line break",
        r#"template: {zooCfg: [{name: tickTime, value: "1\ndataDir=/tmp"}]}"#,
        Schema("spec.template.zooCfg[0].value"),
    ),
    creation(
        "a backslash at the end of a setting",
        r#"template: {zooCfg: [{name: tickTime, value: "1\\"}]}"#,
        Schema("spec.template.zooCfg[0].value"),
    ),
    change(
        "nodes with a time to live become possible",
        "{}",
        "template: {zooCfg: [{name: extendedTypesEnabled, value: 'true'}]}",
        Accepted,
    ),
    change(
        "nodes with a time to live stay possible, in other words",
        TTL,
        "template: {zooCfg: [{name: extendedTypesEnabled, value: ' True'}, {name: snapCount, value: '9'}]}",
        Accepted,
    ),
    change(
        "nodes with a time to live become impossible",
        TTL,
        "template: {zooCfg: [{name: extendedTypesEnabled, value: 'false'}]}",
        Rule("extendedTypesEnabled: it cannot be switched off"),
    ),
    change(
        "the setting of nodes with a time to live is removed",
        TTL,
        "template: {zooCfg: [{name: snapCount, value: '9'}]}",
        Rule("extendedTypesEnabled: it cannot be switched off"),
    ),
    change(
        "all settings are removed",
        TTL,
        "template: {zooCfg: null}",
        Rule("extendedTypesEnabled: it cannot be switched off"),
    ),
    creation("no digest", NO_DIGEST, Accepted),
    change("a default of how data is stored is written out", "{}", DIGEST, Accepted),
    change("the digest is switched off", "{}", NO_DIGEST, Rule(NEVER_DIGEST)),
    change("the digest is switched on", NO_DIGEST, DIGEST, Rule(NEVER_DIGEST)),
    change("the digest comes back by default", NO_DIGEST, "template: {zooCfg: null}", Rule(NEVER_DIGEST)),
    change("the digest stays off", NO_DIGEST, "replicas: 3", Accepted),
    creation("labels of pods", "template: {metadata: {labels: {app.kubernetes.io/part-of: x}}}", Accepted),
    creation(
        "a value that no label can have",
        "template: {metadata: {labels: {app: platform/zk}}}",
        Schema("spec.template.metadata.labels"),
    ),
    creation("a label with an empty value", "template: {metadata: {labels: {example.org/app: ''}}}", Accepted),
    creation("a key with two prefixes", "template: {metadata: {labels: {a/b/c: x}}}", Rule(KEYS)),
    creation("a key of an annotation with a space", "template: {metadata: {annotations: {'a b': x}}}", Rule(KEYS)),
    creation(
        "a key of 64 characters",
        "template: {metadata: {annotations: {a234567890123456789012345678901234567890123456789012345678901234: x}}}",
        Rule(KEYS),
    ),
    creation(
        "a selector that selects no node",
        "template: {scheduling: {nodeSelector: {zone: a b}}}",
        Schema("nodeSelector"),
    ),
    creation("a key of a selector", "template: {scheduling: {nodeSelector: {/zone: a}}}", Rule(KEYS)),
    creation("a selector of one cluster", "overrides: [{cluster: m1, nodeSelector: {zone/: a}}]", Rule(KEYS)),
    creation(
        "tolerations",
        "template: {scheduling: {tolerations: [{operator: Exists}, {key: a, value: b}, {key: example.org/a, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]}}",
        Accepted,
    ),
    creation("a toleration of nothing", "template: {scheduling: {tolerations: [{value: a}]}}", Rule(TOLERATION)),
    creation(
        "a value of a taint that only has to exist",
        "overrides: [{cluster: m1, tolerations: [{key: a, operator: Exists, value: b}]}]",
        Rule(TOLERATION),
    ),
    creation(
        "seconds of a taint that evicts nothing",
        "template: {scheduling: {tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 3}]}}",
        Rule("tolerationSeconds needs effect NoExecute"),
    ),
    creation(
        "a key of a taint",
        "template: {scheduling: {tolerations: [{key: a b, operator: Exists}]}}",
        Schema("tolerations[0].key"),
    ),
    creation(
        "a value of a taint",
        "template: {scheduling: {tolerations: [{key: a, value: b/c}]}}",
        Schema("tolerations[0].value"),
    ),
    creation("an affinity that is a text", "template: {scheduling: {affinity: spread}}", Schema("scheduling.affinity")),
    creation(
        "an affinity of another shape",
        "template: {scheduling: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}}",
        Schema("requiredDuringSchedulingIgnoredDuringExecution"),
    ),
    creation("a priority class", "template: {scheduling: {priorityClassName: High}}", Schema("priorityClassName")),
    creation("a storage class", "template: {storage: {storageClassName: a..b}}", Schema("storageClassName")),
    creation("a volume of nothing", "template: {storage: {size: '0'}}", Rule("size must be larger than 0")),
    creation("an image with a space", "template: {image: 'zookeeper: 3.9.4'}", Schema("spec.template.image")),
    creation(
        "resources",
        "template: {resources: {requests: {cpu: 1, example.org/disk: 2}, limits: {cpu: 1000m, hugepages-2Mi: 4Mi, ephemeral-storage: 1Gi}}}",
        Accepted,
    ),
    creation(
        "a request above its limit",
        "template: {resources: {requests: {memory: 2Gi}, limits: {memory: 2000M}}}",
        Rule("a request cannot be larger than its limit"),
    ),
    creation(
        "a resource that does not exist",
        "overrides: [{cluster: m1, resources: {limits: {mem: 1Gi}}}]",
        Rule("a resource is cpu, memory"),
    ),
    creation("a reserved label", "template: {metadata: {labels: {mczk.io/cluster: x}}}", Rule("labels below mczk.io/")),
    creation(
        "the label that tells who manages",
        "template: {metadata: {labels: {app.kubernetes.io/managed-by: Helm}}}",
        Rule("the label app.kubernetes.io/managed-by of pods"),
    ),
    creation("an annotation of pods", "template: {metadata: {annotations: {example.org/a: x}}}", Accepted),
    creation(
        "a reserved annotation",
        "template: {metadata: {annotations: {mczk.io/cluster: x}}}",
        Rule("annotations below mczk.io/"),
    ),
    creation(
        "an affinity, passed on unchanged",
        "template: {scheduling: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}}",
        Accepted,
    ),
    // Network.
    creation("each mode: Flat", FLAT, Accepted),
    creation("each mode: Custom", CUSTOM, Accepted),
    creation("an unknown mode", "network: {mode: Tunnel}", Schema("spec.network.mode")),
    creation(
        "Custom without a template",
        "network: {mode: Custom}",
        Rule("fqdnTemplate is required in mode Custom, and refused in any other mode"),
    ),
    creation(
        "a template in another mode",
        "network: {fqdnTemplate: '{pod}.{cluster}.example.org'}",
        Rule("fqdnTemplate is required in mode Custom, and refused in any other mode"),
    ),
    creation(
        "a template that gives two clusters one name",
        "network: {mode: Custom, fqdnTemplate: '{pod}.example.org'}",
        Rule("fqdnTemplate must contain {pod}, and {cluster} or {clusterId}"),
    ),
    creation(
        "a template with an unknown placeholder",
        "network: {mode: Custom, fqdnTemplate: '{pod}.{cluster}.{zone}'}",
        Schema("spec.network.fqdnTemplate"),
    ),
    creation(
        "a domain in mode Custom",
        "network: {mode: Custom, fqdnTemplate: '{pod}.{clusterId}.example.org', clusterDomain: example.org}",
        Rule("clusterDomain is refused in mode Custom"),
    ),
    creation(
        "one domain for all clusters in mode Flat",
        "network: {mode: Flat, clusterDomain: cluster.local}",
        Rule("clusterDomain must contain {cluster} or {clusterId} in mode Flat"),
    ),
    creation(
        "a domain for each cluster in mode Flat",
        "network: {mode: Flat, clusterDomain: '{clusterId}.local'}",
        Accepted,
    ),
    change("a network is added", "{}", FLAT, Rule("network cannot be added or removed")),
    change("a network is removed", FLAT, "network: null", Rule("network cannot be added or removed")),
    change("the mode changes", FLAT, "network: {mode: MCS}", Rule("mode cannot change")),
    change(
        "the template changes",
        CUSTOM,
        "network: {fqdnTemplate: '{pod}.{clusterId}.example.org'}",
        Rule("fqdnTemplate cannot change"),
    ),
    change("the domain is added", FLAT, "network: {clusterDomain: '{cluster}.x'}", Rule("clusterDomain cannot change")),
    change(
        "a name of a cluster is added",
        IDS,
        "network: {clusterIds: [{cluster: m3, id: c}, {cluster: m2, id: b}, {cluster: m1, id: a}]}",
        Accepted,
    ),
    change(
        "a name of a cluster changes",
        IDS,
        "network: {clusterIds: [{cluster: m1, id: z}, {cluster: m2, id: b}]}",
        Rule("clusterIds entries can be added, but not changed or removed"),
    ),
    change(
        "the names of clusters are removed",
        IDS,
        "network: {clusterIds: null}",
        Rule("clusterIds entries can be added, but not changed or removed"),
    ),
    change("addresses of peers change", FLAT, "network: {peerCIDRs: ['10.0.0.0/8']}", Accepted),
    creation("the network check is skipped", "network: {preflight: Skip}", Accepted),
    creation("another network check", "network: {preflight: Later}", Schema("spec.network.preflight")),
    change("the network check is skipped later", "{}", "network: {mode: MCS, preflight: Skip}", Accepted),
    change(
        "the network check is required later",
        "network: {preflight: Skip}",
        "network: {preflight: Required}",
        Accepted,
    ),
    change(
        "cluster ids are added with a network later",
        "{}",
        "network: {mode: MCS, clusterIds: [{cluster: m1, id: a}]}",
        Rule("network cannot be added or removed"),
    ),
    creation("an invalid address range", "network: {peerCIDRs: [everywhere]}", Schema("spec.network.peerCIDRs[0]")),
    // TLS.
    change("encryption of the quorum is removed", "{}", "tls: {quorum: false}", Rule("quorum cannot change")),
    change("a default is written out", "{}", "tls: {quorum: true}", Accepted),
    change("clients must encrypt at once", "{}", "tls: {client: {mode: Required, secretName: zk-tls}}", Rule(TLS_STEP)),
    change(
        "clients must encrypt no more at once",
        "tls: {client: {mode: Required, secretName: zk-tls}}",
        "tls: {client: null}",
        Rule(TLS_STEP),
    ),
    change(
        "clients must encrypt after they could",
        "tls: {client: {mode: Optional, secretName: zk-tls}}",
        "tls: {client: {mode: Required, secretName: zk-tls}}",
        Accepted,
    ),
    change(
        "encryption towards clients is added",
        "{}",
        "tls: {client: {mode: Optional, secretName: zk-tls}}",
        Accepted,
    ),
    // Rollout.
    creation("as listed", "rollout: {order: Listed, clusters: [m2, m1]}", Accepted),
    creation(
        "clusters without order Listed",
        "rollout: {clusters: [m2]}",
        Rule("clusters is required with order Listed"),
    ),
    creation(
        "order Listed without clusters",
        "rollout: {order: Listed}",
        Rule("clusters is required with order Listed"),
    ),
    creation("a cluster listed twice", "rollout: {order: Listed, clusters: [m2, m2]}", Schema("Duplicate value")),
    creation("a negative hold", "rollout: {holdSeconds: -1}", Schema("spec.rollout.holdSeconds")),
    creation("an unknown reaction to failure", "rollout: {onFailure: Ignore}", Schema("spec.rollout.onFailure")),
    // Overrides.
    creation(
        "every field of an override",
        "overrides:
         - {cluster: m1, image: mirror/zookeeper:3.9.4, resources: {limits: {memory: 1Gi}}, storageClassName: fast,
            nodeSelector: {disk: nvme}, tolerations: [{operator: Exists}], jvmFlags: [-Xlog:gc],
            zooCfg: [{name: maxClientCnxns, value: '200'}]}",
        Accepted,
    ),
    creation("two overrides of a cluster", "overrides: [{cluster: m1}, {cluster: m1}]", Schema("Duplicate value")),
    creation("a history that is too long", "recordHistoryLimit: 51", Schema("spec.recordHistoryLimit")),
];
