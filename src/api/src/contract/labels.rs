//! Labels, annotations and finalizers on Kubernetes objects.

/// Finalizer of the operator on MultiClusterZooKeeper.
pub const OPERATOR_FINALIZER: &str = "mczk.io/operator";
/// Finalizer of the agent on ZooKeeper objects that have servers.
pub const AGENT_FINALIZER: &str = "mczk.io/agent";

/// Label: name of the MultiClusterZooKeeper that the object belongs to.
pub const ENSEMBLE_LABEL: &str = "mczk.io/ensemble";
/// Label: incarnation of the ensemble that the object belongs to.
pub const INCARNATION_LABEL: &str = "mczk.io/incarnation";
/// Label: role of the servers, `voter` or `observer`.
pub const ROLE_LABEL: &str = "mczk.io/role";
/// Label of pods, and of objects made for them alone: revision of the pod part of the spec.
pub const REVISION_LABEL: &str = "mczk.io/revision";
/// Label of a probe, the pod that checks the network before the first server starts.
pub const PREFLIGHT_LABEL: &str = "mczk.io/preflight";
/// Label: program that writes the object. The agent's value is [`MANAGED_BY_AGENT`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`] on every object that the agent writes.
pub const MANAGED_BY_AGENT: &str = "mczk-agent";
/// Value of [`MANAGED_BY_LABEL`] on every Secret that `mczk install` writes, in the host and in Karmada. `mczk uninstall`
/// removes no other Secret.
pub const MANAGED_BY_INSTALL: &str = "mczk-install";
/// Karmada's label on every object that it manages in a member cluster. Karmada removes it with the object's Work.
pub const KARMADA_MANAGED_LABEL: &str = "karmada.io/managed";

/// Annotation: hash of the object as last applied. It reveals fields that are no longer wanted.
pub const APPLIED_HASH: &str = "mczk.io/applied-hash";
/// Annotation of a PropagationPolicy: every agent has stopped its servers for good, and Karmada may delete their objects.
pub const RELEASED: &str = "mczk.io/released";
/// Annotation of MultiClusterZooKeeper: comma-separated clusters that the user abandons.
pub const ABANDON_CLUSTERS: &str = "mczk.io/abandon-clusters";
/// Annotation of MultiClusterZooKeeper: comma-separated pairs `CLUSTER=PLACE`. The voters of the cluster shall be at the place: a
/// declared spare, or the cluster itself.
pub const FAILOVER: &str = "mczk.io/failover";
/// Annotation of MultiClusterZooKeeper: each new value requests a new quorum authority. The Secret of the authority that
/// the operator creates in answer carries the same value.
pub const REPLACE_AUTHORITY: &str = "mczk.io/replace-authority";
/// Annotation of MultiClusterZooKeeper, and of ZooKeeper objects by the operator: the request to replace a volume
/// ([`crate::contract::replace_request`]).
pub const REPLACE_VOLUME: &str = "mczk.io/replace-volume";
/// Annotation of MultiClusterZooKeeper: the incarnation that the ensemble continues. It counts while no server list exists
/// ([`crate::contract::former_incarnations`]).
pub const ADOPT: &str = "mczk.io/adopt";
/// Annotation of MultiClusterZooKeeper: comma-separated incarnations of its name that the user declares over. No volume is
/// deleted ([`crate::contract::former_incarnations`]).
pub const DECLARE_OVER: &str = "mczk.io/declare-over";
/// Annotation of claims: the agent removed the servers of the volume, because the ensemble ended or left the cluster. Without it
/// the volume belongs to an ensemble that may live.
pub const SERVERS_REMOVED: &str = "mczk.io/servers-removed";
/// Annotation of certificate Secrets: kind of content, its number, and the number of its authority, such as
/// `identity/2/1`.
pub const CERTIFICATE: &str = "mczk.io/certificate";
/// Annotation of certificate Secrets: end of validity, as RFC 3339.
pub const NOT_AFTER: &str = "mczk.io/not-after";
/// Annotation of the PropagationPolicy: hash of the user's placement for which clusters were selected. The operator reads
/// it only if the OverridePolicy lacks [`SELECTED_PLACEMENT`].
pub const PLACEMENT_HASH: &str = "mczk.io/placement-hash";
/// Annotation of the OverridePolicy: the placement that Karmada receives, and the hash of the user's placement behind it.
/// The PropagationPolicy only repeats it, so that an edit there moves no voter.
pub const SELECTED_PLACEMENT: &str = "mczk.io/selected-placement";
/// Annotation of the template: hash of the spec as the operator wrote it. It distinguishes edits by hand from ours.
pub const TEMPLATE_HASH: &str = "mczk.io/template-hash";
/// Annotation of the OverridePolicy: the last records, from which the operator recovers a lost status.
pub const RECORDS: &str = "mczk.io/records";
/// Annotation of the OverridePolicy: the term of the operator that wrote it last. Leaders of later terms have higher numbers.
pub const TERM: &str = "mczk.io/term";
/// Annotation of a Secret in one cluster: when the operator had Karmada apply it again.
pub const APPLY_AGAIN: &str = "mczk.io/apply-again";
/// Annotation of a StatefulSet: when the API server accepted a pod that it had refused. The controller, which tries ever later, tries at
/// once if its object changes.
pub const TRY_AGAIN: &str = "mczk.io/try-again";
/// Annotation of tombstones, on the Secret and its policy.
pub const TOMBSTONE: &str = "mczk.io/tombstone";
/// Annotation of ZooKeeper objects in member clusters: Karmada's name of the cluster, stored once and never changed.
pub const CLUSTER_ANNOTATION: &str = "mczk.io/cluster";

/// Annotations that mark the default storage class with the value `true`; the second one is older.
pub const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
