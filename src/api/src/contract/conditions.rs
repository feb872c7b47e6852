//! Types, statuses and reasons of conditions, with the remedy for each reason.
//!
//! Operator, agents and webhook take the conditions that they write from these tables. `docs/reference/conditions.md` is
//! generated from them.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::described::described;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The writer does not know.
    Unknown,
}

impl ConditionStatus {
    /// The text in `status.conditions[].status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The condition of a type, if it has that status.
#[must_use]
pub fn find(conditions: &[Condition], type_: ConditionType, status: ConditionStatus) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str() && condition.status == status.as_str())
}

/// Object whose status holds a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionOwner {
    /// The MultiClusterZooKeeper. The operator writes it.
    MultiClusterZooKeeper,
    /// The ZooKeeper object in a member cluster. The agent writes it.
    ZooKeeper,
    /// The ZooKeeper template in the control plane. The webhook writes it.
    Template,
}

macro_rules! condition_types {
    ($($(#[doc = $meaning:literal])+ $name:ident = $text:ident of $owner:ident;)+) => {
        described! {
            /// Type of a condition, with the meaning of its status `True`.
            ConditionType;
            $($(#[doc = $meaning])+ $name = stringify!($text);)+
        }

        impl ConditionType {
            /// The object whose status holds the condition.
            #[must_use]
            pub const fn owner(self) -> ConditionOwner {
                match self {
                    $(Self::$name => ConditionOwner::$owner,)+
                }
            }
        }
    };
}

condition_types! {
    /// Every cluster has completed the newest record, and its servers serve.
    Ready = Ready of MultiClusterZooKeeper;
    /// The rollout continues without the user.
    Progressing = Progressing of MultiClusterZooKeeper;
    /// Fewer servers serve than declared, or no quorum serves.
    Degraded = Degraded of MultiClusterZooKeeper;
    /// The ensemble survives the loss of any one cluster.
    QuorumSafe = QuorumSafe of MultiClusterZooKeeper;
    /// Voters have lost their votes because they do not follow, or are at a spare.
    FailedOver = FailedOver of MultiClusterZooKeeper;
    /// Every declared spare can hold voters.
    FailoverReady = FailoverReady of MultiClusterZooKeeper;
    /// The operator uses the schedule of Karmada.
    Scheduled = Scheduled of MultiClusterZooKeeper;
    /// A server runs a version of ZooKeeper that is known to lose acknowledged writes.
    UnsafeVersion = UnsafeVersion of MultiClusterZooKeeper;
    /// A server or a member cluster runs a version with which mczk has no run.
    UntestedVersion = UntestedVersion of MultiClusterZooKeeper;
    /// The user has paused the rollout.
    Paused = Paused of MultiClusterZooKeeper;
    /// A certificate of the ensemble expires soon, although its renewal is due.
    CertificatesExpire = CertificatesExpire of MultiClusterZooKeeper;
    /// The agent continues to apply the spec hash. It writes no such condition before it has accepted one.
    AgentProgressing = Progressing of ZooKeeper;
    /// The agent waits for the user.
    Blocked = Blocked of ZooKeeper;
    /// A cluster that is a spare would accept the servers of the ensemble. Only the object that asks for it has this condition.
    SpareFit = SpareFit of ZooKeeper;
    /// A server has to leave a node that is being drained.
    Draining = Draining of ZooKeeper;
    /// A user wants the volume of a server of the cluster replaced by an empty one.
    Replacing = Replacing of ZooKeeper;
    /// Another writer changes an object of the agent again and again. The agent writes it ever later, at most once a minute. Or the
    /// API server refuses what no server needs, such as the deletion of a former revision's ConfigMap. Both stop no change.
    Contested = Contested of ZooKeeper;
    /// Servers of former incarnations are left in the cluster, and no tombstone names them.
    FormerIncarnation = FormerIncarnation of ZooKeeper;
    /// Servers keep their certificates for clients, because the agent does not accept the newest Secret.
    ClientCertificatesKept = ClientCertificatesKept of ZooKeeper;
    /// A certificate that servers of the cluster use expires soon, although its renewal is due.
    AgentCertificatesExpire = CertificatesExpire of ZooKeeper;
    /// The volume of a server fills up.
    DiskPressure = DiskPressure of ZooKeeper;
    /// A server cannot start from its volume.
    VolumeUnusable = VolumeUnusable of ZooKeeper;
    /// No server of the incarnation is left in the cluster, and none starts again.
    Decommissioned = Decommissioned of ZooKeeper;
    /// The webhook cannot read the status of a member cluster and does not count it.
    Unreadable = Unreadable of Template;
}

impl Display for ConditionType {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a user does about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing.
    None,
    /// The condition of this type explains more.
    See(ConditionType),
    /// This.
    Do(&'static str),
}

impl Display for Remedy {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("Nothing"),
            Self::See(type_) => write!(formatter, "See the condition `{type_}`"),
            Self::Do(text) => formatter.write_str(text),
        }
    }
}

/// A remedy as the table has it.
macro_rules! remedy {
    (None) => {
        Remedy::None
    };
    (See($type:ident)) => {
        Remedy::See(ConditionType::$type)
    };
    (Do($text:literal)) => {
        Remedy::Do($text)
    };
}

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident, $($type:ident = $status:ident),+; $remedy:ident$(($($help:tt)+))?;)+) => {
        described! {
            /// Reason of a condition.
            Reason;
            $($(#[doc = $meaning])+ $name = stringify!($name);)+
        }

        impl Reason {
            /// What the user does.
            #[must_use]
            pub const fn remedy(self) -> Remedy {
                match self {
                    $(Self::$name => remedy!($remedy$(($($help)+))?),)+
                }
            }

            /// The types of condition that have this reason, with the status that the reason stands for.
            #[must_use]
            pub const fn conditions(self) -> &'static [(ConditionType, ConditionStatus)] {
                match self {
                    $(Self::$name => &[$((ConditionType::$type, ConditionStatus::$status)),+],)+
                }
            }
        }
    };
}

reasons! {
    /// Every cluster is complete and serves.
    Serving, Ready = True; None;
    /// A record is being rolled out.
    RollingOut, Ready = False; See(Progressing);
    /// The rollout is done, but a cluster is not complete.
    ClusterNotReady, Ready = False; Do("See the message of the cluster in `status.clusters`");

    /// A cluster of the current record applies its change.
    Deploying, Progressing = True;
        Do("Wait. If it lasts, check the agent and the pods of the cluster that the message names");
    /// A cluster is complete, and the operator holds it for `rollout.holdSeconds`.
    Holding, Progressing = True; Do("Wait");
    /// Servers change to a new authority of the quorum.
    ReplacingAuthority, Progressing = True;
        Do("Wait for the clusters named. Remove a cluster that is lost for good from `placement`");
    /// The operator suspends the servers of a bootstrap that cannot form a quorum, to start a new incarnation.
    BootstrapSuspended, Progressing = True;
        Do("Wait for the clusters named. Abandon a cluster only if it is lost for good, with its volumes: the operator does not ask it");
    /// The operator waits for the report of an agent before it changes anything.
    ClusterNotReported, Progressing = True; Do("Check that agents run in the clusters named, and read their logs");
    /// The agents check the network before the first server starts, or before a cluster joins.
    NetworkUnchecked, Progressing = True;
        Do("Wait. If it lasts, do what the message says, upgrade the agents of the clusters named, or set `spec.network.preflight` to `Skip`");
    /// A cluster does not reach a name or a port of another cluster, or not fast enough, so no server starts, or no cluster joins.
    NetworkBroken, Progressing = False;
        Do("Mend the name, the port or the path of the pair of clusters named; the check repeats by itself. See docs/how-to/network.md");
    /// The last record is rolled out.
    Done, Progressing = False; None;
    /// The user has paused the rollout, and no further cluster starts.
    Paused, Progressing = False; Do("Unset `rollout.paused` to continue");
    /// The operator cannot use the schedule of Karmada.
    WaitingForSchedule, Progressing = False; See(Scheduled);
    /// Karmada does not reach a cluster that has voters or that the rollout waits for, or none of its nodes is Ready.
    ClusterUnreachable, Progressing = False, Degraded = True;
        Do("Restore the clusters named (`kubectl get clusters`). Their servers may still run");
    /// The last report of a cluster is of another cluster of the same name, which Karmada still reads, or had before.
    OtherClusterReported, Progressing = False, Degraded = True;
        Do("Restart karmada-controller-manager, or karmada-agent in a Pull cluster. If it lasts, correct `spec.id` of the Cluster in Karmada, as docs/how-to/lost-cluster.md says. Do not let the cluster leave: Karmada would delete its servers and volumes");
    /// A cluster reports that it cannot complete its change.
    ClusterFailed, Progressing = False;
        Do("The message comes from the cluster. Correct the spec: the correction starts in that cluster");
    /// A cluster is not complete after `rollout.progressDeadlineSeconds`.
    ProgressDeadlineExceeded, Progressing = False;
        Do("As `ClusterFailed`. If the cluster is only slow, raise `rollout.progressDeadlineSeconds`");
    /// A cluster of the current record is no longer scheduled, or Karmada has not removed the object from such a cluster.
    ClusterGone, Progressing = False; Do("Wait. If it lasts, check Karmada and the agent of the cluster named");
    /// No majority serves, or the change would leave none.
    NoQuorum, Progressing = False;
        Do("Restore servers until as many serve as the message names. No further cluster starts before that");
    /// The schedule changed before the first quorum formed, and the server list is frozen until then.
    BootstrapListFrozen, Progressing = False;
        Do("Start the missing cluster, or revert the change. Abandon clusters only if they are lost for good, with their volumes");
    /// `observers` names a cluster without a voter.
    ObserversWithoutVoter, Ready = False, Progressing = False;
        Do("Give the cluster a voter, or remove it from `observers`");
    /// No server id is free for a new server.
    NoServerId, Ready = False, Progressing = False;
        Do("Declare fewer servers, or restore the cluster that does not report");
    /// The OverridePolicy would be too large.
    TooLarge, Ready = False, Progressing = False; Do("Shorten the spec: `jvmFlags`, `zooCfg`, pod metadata, overrides");
    /// The operator creates the certificates of the quorum.
    Certificates, Progressing = False; Do("Wait: the operator creates them. If it lasts, read the operator's log");
    /// The operator cannot recover the server list: status and OverridePolicy are gone, and no agent reports it.
    ServerListUnknown, Ready = False, Progressing = False;
        Do("Do what the message says: upgrade the agents, or restore the status. Declare the incarnation over only if its data has no use. Never skip the network check");
    /// Another incarnation of this name is still in member clusters, so no first server starts. Its control plane was lost, or
    /// its object was deleted there.
    IncarnationLives, Ready = False, Progressing = False;
        Do("Run `mczk adopt` to continue the incarnation that the message names, or `mczk declare-over` if its data has no use. See docs/how-to/backup.md");
    /// The annotation `mczk.io/adopt` or `mczk.io/declare-over` cannot be followed.
    FormerIncarnationUnclear, Ready = False, Progressing = False;
        Do("Do what the message says: correct the annotation, or let the clusters named report");
    /// The control plane knows less than agents: an older backup was restored, or another control plane has adopted the ensemble.
    NewerServerList, Ready = False, Progressing = False;
        Do("Do what the message says. After a restore: apply the newest declaration, and join the clusters that it names. If another control plane continues the ensemble: stop the controllers of one of both. See docs/how-to/backup.md");
    /// Karmada cannot apply the object in a cluster.
    NotApplied, Progressing = False; Do("Correct what Karmada's message names, in the cluster that it names");
    /// An object of a name that mczk needs exists and does not belong to mczk.
    NameConflict, Ready = False, Progressing = False, Blocked = True;
        Do("Delete the object named only if nothing else needs it. Declare the ensemble under another name only if no servers of this name run");
    /// Karmada's schedule has other numbers of voters than the operator decided, or gives one cluster a majority because
    /// another one is not Ready.
    OtherDivision, Scheduled = False;
        Do("Do what the message says: wait for the cluster that it names, or remove it from `spec.placement`");
    /// Karmada propagates nothing in the namespace of the object.
    ReservedNamespace, Ready = False, Progressing = False; Do("Create the object in another namespace");
    /// This version of mczk does not understand the object.
    UnsupportedSpec, Ready = False, Progressing = False, Blocked = True;
        Do("Correct the field named, or bring mczk and its kinds to one version. For that run `mczk install` of this version again, or `mczk register --only crds,propagation`");
    /// The last reconciles failed: the operator could not read or write an object.
    ApplyFailed, Progressing = False;
        Do("The message names the request and the cause. Missing rights: run the command in the message, or `mczk install` again. Changed each time by another client: stop that client. Else wait: the operator tries again");
    /// The operator failed to decide.
    Internal, Ready = False, Progressing = False;
        Do("This is a defect of mczk. Please report it with the object and the operator's log");

    /// The object is being deleted.
    Deleting, Ready = False; See(Progressing);
    /// The object is being deleted, and the agents stop its servers for good.
    Decommissioning, Progressing = False; Do("Wait for the clusters named. Abandon a cluster that never comes back");
    /// The object is being deleted, and Karmada releases the objects in the member clusters for deletion.
    Releasing, Progressing = False;
        Do("Wait for Karmada: karmada-controller-manager must run, and karmada-agent in Pull clusters");
    /// The object is being deleted, and the operator deletes the template and its exports.
    DeletingTemplate, Progressing = False; Do("As `Releasing`");
    /// The object is being deleted, and Karmada removes its Works.
    DeletingBinding, Progressing = False; Do("As `Releasing`. `kubectl get work -A` shows the remaining Works");
    /// The object is being deleted, and the operator deletes the policies.
    DeletingPolicies, Progressing = False; Do("Wait");

    /// Every voter of the ensemble serves.
    Healthy, Degraded = False; None;
    /// The first quorum has not formed yet.
    Bootstrapping, Degraded = False; See(Progressing);
    /// No cluster reports a quorum.
    QuorumNotSeen, Degraded = True;
        Do("Restore servers until a majority serves. No agent stops a serving voter before that");
    /// Voters do not serve.
    VotersDown, Degraded = True, QuorumSafe = False;
        Do("Check the servers named, and restore them. `status.clusters` shows their clusters");
    /// A policy of a user carries a private key of the quorum to member clusters.
    KeyPropagated, Degraded = True;
        Do("Exclude the Secret named from the policy named. Then replace the authority: `mczk.io/replace-authority`");
    /// Karmada has not brought a Secret of the quorum to a cluster, or the cluster refuses it.
    CertificatesMissing, Degraded = True;
        Do("Read the Work of the Secret in the control plane, as the message says, and correct the policy or the quota that refuses it");
    /// An agent does not accept the Secret with the certificates for clients.
    ClientCertificates, Degraded = True, Blocked = True;
        Do("Correct the Secret of `tls.client` as the message says. Running servers keep their certificates");
    /// A cluster of `network.importClusters` does not get the client Service.
    NotImported, Degraded = True;
        Do("Do what stands in brackets: join the cluster, correct its name, bring it back, or let it serve ServiceImport. The servers serve meanwhile");
    /// Another client suspends what Karmada brings to some clusters.
    HeldBack, Degraded = True; Do("Remove the field that the message names from the ResourceBinding, or wait for its client");
    /// `overrides`, `observers` or `rollout.clusters` name a cluster that Karmada does not know.
    ClusterUnknown, Degraded = True; Do("Correct the name, or join the cluster. The servers serve meanwhile");
    /// A volume is more than 80 % full.
    DiskFillsUp, Degraded = True, DiskPressure = True;
        Do("Raise `template.storage.size`, write less, or remove folders of `status.servers[].setAside` that you do not need. Remove nothing else on a volume");
    /// `ZooKeeper` cannot read its files on a volume.
    VolumeCorrupt, Degraded = True, VolumeUnusable = True;
        Do("Replace the volume with `mczk replace`: the agent does so only while a majority serves, one at a time. Delete no claim yourself");
    /// The volume of a voter is empty, an old copy, or that of another server.
    VolumeLost, Degraded = True, VolumeUnusable = True;
        Do("Wait: the server returns under a new id while a majority serves. Else bring the other voters back, or restore the newest volumes. Delete none");
    /// A server cannot note on its volume how new it is. If a copy of the volume replaced it, the server would vote from the copy.
    VolumeNotMarked, VolumeUnusable = Unknown;
        Do("Correct what the message names, such as a full disk. Until then replace the volume by no copy of it");
    /// No ensemble exists yet.
    NoEnsemble, Degraded = False, QuorumSafe = Unknown; See(Progressing);

    /// The ensemble survives the loss of any one cluster.
    Spread, QuorumSafe = True; None;
    /// The number of voters is even. It survives no more losses than one voter fewer.
    EvenVoters, QuorumSafe = True; Do("Declare an odd number of voters");
    /// One cluster holds so many voters that the others have no majority.
    ClusterHoldsMajority, QuorumSafe = False; Do("Spread the voters over three clusters or more");

    /// Without the voters that have lost their votes, one cluster holds a majority of the others.
    VotesLost, QuorumSafe = False; See(FailedOver);

    /// Every listed voter has its vote, or gets it for the first time, and none is at a spare.
    AtHome, FailedOver = False; None;
    /// The voters of a cluster are at a spare, or move there.
    Moved, FailedOver = True;
        Do("Bring the cluster back. Then `mczk failover NAME --back CLUSTER`, or `failover.moveBackAfterSeconds`, moves its voters back. See docs/explanation/failover.md");
    /// Karmada does not reach a cluster, and none of its voters follows.
    ClusterLost, FailedOver = False; Do("Bring the cluster back. Otherwise its voters move when the message says so");
    /// Voters have lost their votes because they did not follow for `failover.demoteAfterSeconds`.
    Demoted, FailedOver = True;
        Do("Bring the servers named back: they get their votes back by themselves. If they are lost for good, remove their cluster from `placement`. See docs/explanation/failover.md");

    /// Voters are about to move without a request, and the operator observes them for some more seconds.
    SecondLook, Progressing = True; Do("Wait. If the cluster comes back before, its voters stay");
    /// Every spare can hold voters.
    SparesUsable, FailoverReady = True; None;
    /// `failover.spares` names no cluster.
    NoSparesDeclared, FailoverReady = Unknown; None;
    /// Every spare holds the voters of a cluster.
    NoSpareLeft, FailoverReady = False; Do("Bring the clusters back whose voters are at spares, or declare another spare in `failover.spares`");
    /// Voters should move to another cluster or back, and something stands against it.
    MoveWaits, FailoverReady = False; Do("Remove what the message names. A request that cannot be met is taken back with `mczk failover NAME --release CLUSTER`");
    /// Every spare may be used, and the agent of one has not said whether its cluster would accept servers.
    SpareUnanswered, FailoverReady = False; Do("Read the message. If it names no error, wait a minute. If it lasts, install the agent of this version in the spare");
    /// A spare could not hold voters now.
    SpareUnusable, FailoverReady = False; Do("Mend the spare as the message says, or remove it from `failover.spares`");
    /// The annotation `mczk.io/failover` cannot be read, names a cluster that has no voters here, or a place that is no spare.
    RequestUnclear, FailoverReady = False; Do("Correct the annotation `mczk.io/failover` as the message says");

    /// A server runs a version of ZooKeeper that is known to lose acknowledged writes.
    LosesWrites, UnsafeVersion = True; Do("Change `spec.template.image` to the version that the message names, or a newer one");
    /// No server reports a version that is known to lose acknowledged writes.
    NoKnownLoss, UnsafeVersion = False; None;
    /// A version of ZooKeeper or Kubernetes has no entry in the table.
    NotTested, UntestedVersion = True;
        Do("Use a version of the [table](versions.md), or test this one yourself: mczk stops nothing");
    /// Every version that is reported has an entry in the table.
    Tested, UntestedVersion = False; None;

    /// Karmada has scheduled every voter.
    Placed, Scheduled = True; None;
    /// No cluster matches `placement`.
    NoClusterMatches, Scheduled = False; Do("Change `placement`, or label or join a cluster");
    /// `placement` names a cluster that has not joined Karmada, and the ensemble has no server yet.
    ClusterNotJoined, Scheduled = False;
        Do("Join the cluster, or correct its name in `placement`. If it is lost for good, name it in the annotation `mczk.io/abandon-clusters`");
    /// A matching cluster does not serve the kinds ZooKeeper and ServiceExport.
    KindsNotServed, Scheduled = False;
        Do("Wait half a minute after `mczk install` or `mczk register`. Then find out why the kinds do not reach the cluster");
    /// Karmada has not created a ResourceBinding for the template.
    NoBinding, Scheduled = False;
        Do("Wait half a minute. Then run `mczk doctor`, and read the events of the `ZooKeeper` in the control plane: `kubectl events --for zookeeper/NAME`");
    /// Karmada has not scheduled the newest template and policy.
    Rescheduling, Scheduled = False;
        Do("Wait for Karmada. If it lasts, read the events of the `ZooKeeper` in the control plane (`kubectl events --for zookeeper/NAME`): karmada-scheduler must run, and a quota may refuse");
    /// The scheduler of Karmada found no clusters for the voters.
    NotScheduled, Scheduled = False;
        Do("Change the object that the message names after the words of the scheduler");
    /// Karmada did not ask the webhook for the replicas of the template.
    NotInterpreted, Scheduled = False;
        Do("Run `mczk install` again, or `mczk register --only interpreter` with its flags. Check that Karmada reaches the operator at the registered URL");
    /// Another policy has claimed the template.
    OtherPolicy, Scheduled = False;
        Do("Exclude the `ZooKeeper` from the policy named, or delete that policy if it is for nothing else. If the message names none, wait");
    /// The ResourceBinding of this name belongs to another template.
    ForeignBinding, Scheduled = False;
        Do("Wait. If it lasts, see `spec.resource` of the ResourceBinding. Delete the ResourceBinding only if that object is gone");

    /// `rollout.paused` is set.
    PausedBySpec, Paused = True; Do("Unset `rollout.paused` to continue");
    /// `rollout.paused` is not set.
    NotPaused, Paused = False; None;

    /// Every certificate of the ensemble is valid for longer than its renewal takes.
    CertificatesValid, CertificatesExpire = False; None;
    /// A certificate of the quorum expires soon. The operator renews it when a third of its validity is left.
    QuorumCertificateExpires, CertificatesExpire = True, AgentCertificatesExpire = True;
        Do("Read the condition `Progressing` and the logs of operator and agent: the renewal fails or does not arrive");
    /// A certificate of `tls.client` expires soon. The user renews it.
    ClientCertificateExpires, CertificatesExpire = True, AgentCertificatesExpire = True;
        Do("Renew the certificate in the Secret of `tls.client`, in the control plane. Servers load it without a restart");

    /// The operator has not evaluated the condition, because another condition stops it earlier.
    NotEvaluated, Degraded = Unknown, QuorumSafe = Unknown, FailedOver = Unknown, FailoverReady = Unknown, Scheduled = Unknown, CertificatesExpire = Unknown;
        See(Progressing);

    /// Every server is as declared.
    Complete, AgentProgressing = False; None;
    /// Servers are starting.
    Starting, AgentProgressing = True; Do("Wait. If it lasts, check the pod that the message names");
    /// The agent restarts a server.
    Restarting, AgentProgressing = True; Do("Wait");
    /// The agent waits for other servers before it restarts or removes one.
    Waiting, AgentProgressing = True;
        Do("Wait. If it lasts, restore the server that the message names, in its cluster");
    /// Servers began once, and started again before the first quorum: only other voters can say whether they voted.
    WaitingForVoters, AgentProgressing = True;
        Do("Wait: the servers of other clusters start meanwhile. If it lasts, see `docs/explanation/server.md`, The first start");
    /// Servers wait for a Secret with certificates that has not reached the cluster.
    WaitingForCertificates, AgentProgressing = True;
        Do("Wait. If it lasts, check that Karmada propagates the Secret named to the cluster");
    /// A volume is smaller than `template.storage.size`, and grows.
    GrowingVolume, AgentProgressing = True;
        Do("Wait. If it lasts, read the events of the claim that the message names");
    /// A server does not start, or turns its clients away.
    ServerFailed, AgentProgressing = False;
        Do("Correct the cause that the message names: the spec, the image registry or the nodes");

    /// The agent does not accept the spec.
    SpecRefused, Blocked = True;
        Do("Correct the cause that the message names. Usually the agent is older than the operator: upgrade it");
    /// The agent of the cluster is limited to other namespaces.
    NamespaceNotHandled, Blocked = True;
        Do("Add the namespace to the agent's flag `--namespaces`, or to `namespaces` in its chart");
    /// The API server of the cluster refuses an object, or would refuse the pod that follows a restart.
    ObjectRefused, Blocked = True, Contested = True;
        Do("The message has the words of the API server: raise the quota, exempt the object from the policy, or correct the spec. A correction starts at once");
    /// The API server of the spare would accept every object of a server, and nothing says that its volume could not be had.
    ServersAccepted, SpareFit = True; None;
    /// The API server of the spare would refuse an object of a server, or the agent may not write it.
    ServersRefused, SpareFit = False;
        Do("The message has the words of the API server: give the agent its rights, raise the quota, or exempt the object from the policy");
    /// The spare has no storage class and no free volume for servers.
    NoStorageClass, SpareFit = False;
        Do("Create the class, mark one as the default, or name another one in `overrides[].storageClassName` of the ensemble");
    /// A tombstone in the cluster says that the ensemble is over, and the control plane still declares it.
    DeclaredOver, Blocked = True;
        Do("Wait if the ensemble is being deleted. If it shall go on after a restore of an older copy, delete the Secret that the message names in this cluster");
    /// The API server of the cluster refuses the agent a request without which it cannot continue, such as the read of a Secret.
    RequestRefused, Blocked = True;
        Do("Give the agent the rights of its manifest or chart, or correct what the message names. Servers run on; until then the agent changes nothing and reports that none serves");
    /// A server that has to go is still a voter of ZooKeeper's configuration.
    StillVotes, Blocked = True; Do("Wait until the voters named have left the ensemble, or restore the quorum");
    /// The user deletes the object in the member cluster, but its servers belong to the ensemble.
    Deleted, Blocked = True;
        Do("To keep the servers, let Karmada manage the object again. To remove them, change `placement`. If they are of a former incarnation, create the MultiClusterZooKeeper again and adopt them. Leave the finalizer `mczk.io/agent`");
    /// Servers of former incarnations are left in the cluster, and no tombstone names them.
    FormerIncarnation, Blocked = True;
        Do("If their data has no use any more, declare them over: `mczk declare-over` deletes no volume");
    /// The API server refuses to grow a volume, or its growth failed.
    VolumeNotResized, Blocked = True;
        Do("Set `allowVolumeExpansion` in the storage class, correct what the message names, or lower the size again");
    /// The agent cannot use the certificates of the quorum.
    CertificatesUnusable, Blocked = True; Do("Replace the authority of the quorum: `mczk.io/replace-authority`");

    /// The node of the server is cordoned, or an autoscaler drains it.
    NodeDrained, Draining = True; Do("Wait until the server has left the node, or uncordon it");
    /// The node of the server is being drained. The server stays, because no other node fits it or the ensemble can
    /// spare no voter.
    ServerStays, Draining = True;
        Do("Uncordon the node, or add one that fits: the message names what is missing. See docs/how-to/drain-a-node.md");
    /// The agent may not read nodes: it moves no server off a node that is being drained.
    NodesUnread, Draining = Unknown;
        Do("Give the agent the right to `get` and `list` nodes, as its manifest and its chart do. Until then a drain does not end");
    /// The agent deletes the claim and the pod of a server, so that it gets an empty volume.
    ReplacingVolume, Replacing = True; Do("Wait: the server returns under a new id");
    /// The agent does not delete the volume. No majority serves without the server, another server lacks a volume, or another
    /// agent holds the restart lock.
    ReplacementWaits, Replacing = True;
        Do("Do what the message says, or wait. Remove the annotation `mczk.io/replace-volume` to keep the volume");
    /// A policy, a webhook or a controller changes what the agent writes.
    ChangedByOthers, Contested = True;
        Do("Exempt objects with the label `app.kubernetes.io/managed-by: mczk-agent` from the policy or the controller that the message names");
    /// Servers of former incarnations are left in the cluster.
    ServersLeft, FormerIncarnation = True;
        Do("If their data has no use any more, declare them over: `mczk declare-over` deletes no volume");
    /// The agent does not accept the newest Secret of `tls.client`.
    SecretNotAccepted, ClientCertificatesKept = True; Do("Correct the Secret as the message says");
    /// The agent has stopped every server for good.
    Decommissioned, Decommissioned = True; None;
    /// An agent of another version wrote the status.
    OtherVersion, Unreadable = True; Do("Bring the operator and the agents to one version");
}

impl Reason {
    /// The status that the reason stands for in a condition, if the condition can have this reason.
    #[must_use]
    pub fn status_in(self, condition: ConditionType) -> Option<ConditionStatus> {
        self.conditions().iter().find(|(type_, _)| *type_ == condition).map(|(_, status)| *status)
    }

    /// True if the operator publishes a warning when a condition gets this reason.
    #[must_use]
    pub fn is_warning_in(self, condition: ConditionType) -> bool {
        let status = self.status_in(condition);
        match condition {
            // Right after a change Karmada has not scheduled yet.
            ConditionType::Scheduled => {
                status == Some(ConditionStatus::False) && !matches!(self, Self::Rescheduling | Self::NoBinding)
            }
            ConditionType::Progressing => {
                status == Some(ConditionStatus::False)
                    && !matches!(self, Self::Done | Self::Paused | Self::WaitingForSchedule)
            }
            ConditionType::Degraded | ConditionType::CertificatesExpire => status == Some(ConditionStatus::True),
            _ => false,
        }
    }
}

impl Display for Reason {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A text is no reason of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no reason of this version")]
pub struct UnknownReason;

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text).ok_or(UnknownReason)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_is_named_once_and_read_back() {
        let names: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
        }
        assert_eq!("Nonsense".parse::<Reason>(), Err(UnknownReason));
    }

    #[test]
    fn a_reason_has_one_status_in_a_condition() {
        for reason in Reason::ALL {
            let types: BTreeSet<_> = reason.conditions().iter().map(|(type_, _)| type_).collect();
            assert_eq!(types.len(), reason.conditions().len(), "{reason}");
        }
    }

    #[test]
    fn every_type_has_a_reason() {
        for type_ in ConditionType::ALL {
            assert!(Reason::ALL.iter().any(|reason| reason.status_in(*type_).is_some()), "{type_}");
        }
    }

    #[test]
    fn these_reasons_are_moving() {
        let is_moving = |reason: &&Reason| reason.status_in(ConditionType::Progressing) == Some(ConditionStatus::True);
        let moving: Vec<_> = Reason::ALL.iter().filter(is_moving).map(|reason| reason.as_str()).collect();
        assert_eq!(
            moving,
            [
                "Deploying",
                "Holding",
                "ReplacingAuthority",
                "BootstrapSuspended",
                "ClusterNotReported",
                "NetworkUnchecked",
                "SecondLook"
            ]
        );
    }
}
