//! Deliberately broken variants of the safety rules. They prove that the tests find each broken rule.
//!
//! A rule asks `broken!(Variant)`. Without the feature `mutations` that is the constant `false`, and release builds refuse
//! the feature. With it, a test activates one variant for its own thread by [`Mutation::activate`].

#[cfg(feature = "mutations")]
use std::cell::Cell;

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("the feature `mutations` breaks safety rules on purpose: never build a release with it");

/// True if the test of this thread breaks the rule by this variant.
#[cfg(feature = "mutations")]
#[macro_export]
macro_rules! broken {
    ($variant:ident) => {
        $crate::mutation::Mutation::$variant.is_active()
    };
}

/// A constant `false` outside tests.
#[cfg(not(feature = "mutations"))]
#[macro_export]
macro_rules! broken {
    ($variant:ident) => {
        false
    };
}

pub use broken;

/// True if this build breaks safety rules on request. No program runs with it.
pub const ENABLED: bool = cfg!(feature = "mutations");

#[cfg(feature = "mutations")]
thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

#[cfg(feature = "mutations")]
macro_rules! mutations {
    ($($(#[doc = $of:literal])+ $group:ident { $($(#[doc = $meaning:literal])+ $variant:ident,)+ })+) => {
        /// The rule that is broken, by variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Mutation {
            $($($(#[doc = $meaning])+ $variant,)+)+
        }

        impl Mutation {
            $($(#[doc = $of])+ pub const $group: &[Self] = &[$(Self::$variant),+];)+
        }
    };
}

#[cfg(feature = "mutations")]
mutations! {
    /// Variants of `rollout`.
    ROLLOUT {
        /// S1: the next cluster starts although another is changing.
        NextBeforeComplete,
        /// S2: the operator lowers replicas although the ensemble still counts the servers as voters.
        LowerBeforeRemoved,
        /// S3, S9: the server list changes although no quorum is reported.
        ListWithoutQuorum,
        /// S3: a cluster starts although its restarts would leave no quorum.
        BeginWithoutQuorum,
        /// S4: a new server gets an id that another server had.
        ReuseIds,
        /// S4: a place that is listed again gets another id although its server still votes.
        ForgetLeaving,
        /// S4: after the policy is lost, ids are allocated before every known cluster has reported.
        AllocateBeforeReports,
        /// S5: the server list changes before a quorum has formed.
        ListDuringBootstrap,
        /// Liveness: a cluster with servers that must leave blocks the clusters that bring their replacements.
        NoJoinersFirst,
        /// S6: a change of the template reaches every cluster in use at once.
        AssignEveryCluster,
        /// S6: a change of the MultiClusterZooKeeper enters the template while a record rolls.
        TemplateDuringRecord,
        /// S7: the operator overwrites an object that it does not own.
        AdoptForeign,
        /// S8: the operator trusts a report of an unreachable cluster.
        BelieveUnreachable,
        /// S8: the operator trusts a report about another spec hash.
        BelieveOtherSpecHash,
        /// (R): the operator trusts a schedule of an unsettled binding.
        BelieveUnsettled,
        /// (R): clusters are selected before all of them serve the kinds of mczk.
        IgnoreEnablements,
        /// (R): the policy lacks its first rule, which holds every cluster at 0 replicas.
        NoZeroRule,
        /// (R): member clusters lose their objects with the Work.
        NoPreserve,
        /// (R): the server list travels with the cluster specs, cluster by cluster.
        ListByCluster,
        /// (R): the template is deleted before every cluster has reported its decommission.
        DeleteBeforeDecommissioned,
        /// (R): the template is deleted before every Work stops preserving its object.
        DeleteBeforeReleased,
        /// S1: a superseding record does not begin with the cluster that was changing.
        BeginElsewhere,
        /// S1: a rollout does not wait for a changing cluster that left the schedule.
        ForgetUnscheduled,
        /// S6: cluster specs of a lost policy are recovered from the next template.
        RecoverNextTemplate,
        /// A recovered server list keeps its epoch, which may name another list.
        SameEpoch,
        /// S5: the bootstrap ends with its record, without a quorum.
        RunUnformed,
        /// (R): with the policy lost, clusters that report servers are not decommissioned.
        DecommissionOnlyKnown,
        /// Liveness: before a majority is started, a cluster is complete only when its servers serve.
        ServeBeforeMajority,
        /// Liveness: a completed record is continued instead of a new one appended.
        ContinueReadyRecord,
        /// S8: a cluster spec that is assigned again keeps its former spec hash.
        SameGeneration,
        /// S5: a rebootstrap begins although the servers of the first bootstrap are not suspended.
        RebootstrapUnsuspended,
        /// S5: a rebootstrap begins although a cluster has not reported its servers as suspended.
        BelieveUnreported,
        /// S5: a rebootstrap begins although a server of the first bootstrap accepted an epoch.
        ForgetAccepted,
        /// A wiped status restarts the history of records.
        ForgetRecords,
        /// (R): an owned object counts as written although another client added a field.
        KeepForeignFields,
        /// (R): the operator trusts a schedule that follows from an edited placement.
        BelieveEditedPlacement,
        /// (R): the operator trusts a cluster spec that another client edited in the OverridePolicy.
        BelieveEditedSpec,
        /// S4: the operator trusts a server list that another client edited in the OverridePolicy.
        BelieveEditedList,
        /// S6: the operator rolls out a template that another client edited.
        BelieveEditedTemplate,
        /// (R): the operator trusts the schedule of a deleted template.
        BelieveOtherBinding,
        /// Liveness: the binding of a deleted template keeps its deletion protection.
        KeepProtection,
        /// (R): the operator selects clusters again when one joins or leaves the federation.
        SelectAgain,
        /// S1: a write does not name the version of the object that the plan rests on.
        WithoutVersion,
        /// S3: the deploying cluster gets another spec although no report shows its servers.
        RestartUnseen,
        /// Liveness: at the end the PropagationPolicy stays as another client edited it.
        KeepEditedAtEnd,
        /// Liveness: at the end a cluster with servers stays without a Work, because Karmada's schedule lacks it.
        LeaveUnscheduled,
        /// (S7): an edited PropagationPolicy that releases the objects ends an ensemble whose servers still run.
        BelieveReleased,
        /// Liveness: the operator does not wake up at the deadline of a record.
        SleepPastDeadline,
        /// S1: a former leader writes although the OverridePolicy shows a later term.
        IgnoreLaterTerm,
        /// S1: a leader acts before it has written its term into the OverridePolicy.
        ActUnclaimed,
    }
    /// Variants of `rollout::advance::preflight`.
    PREFLIGHT {
        /// S12: the first server starts, or a cluster joins, although a cluster has not passed the network check.
        SkipPreflight,
    }
    /// Variants of `runtime::election`.
    ELECTION {
        /// A candidate takes a Lease over whose holder may still act.
        TakeOverAtOnce,
        /// A holder acts although its renewals failed.
        ActWithoutRenewal,
        /// A holder counts its time from the answer to a renewal, not from the request.
        CountFromAnswer,
        /// A candidate creates a Lease that was deleted at once, although its holder may still act.
        ForgetDeleted,
    }
    /// Variants of `rollout::certificates`.
    CERTIFICATES {
        /// No step of a replacement waits for the step before it.
        SkipWait,
        /// The old authority loses trust before every cluster presents the new identity.
        TrustNewOnlyTooEarly,
        /// Servers present the new identity before its authority is trusted.
        IdentityBeforeTrust,
        /// A replacement does not wait for an unreachable cluster.
        IgnoreUnreachable,
        /// A replacement that is done is done again.
        ReplaceAgain,
        /// A lost identity is issued again under the newest trusted authority.
        ReissueUnderNewest,
    }
    /// Variants of `agent::decide::membership`.
    MEMBERSHIP {
        /// The agent reconfigures although no majority follows.
        WithoutQuorum,
        /// A server becomes a voter before it follows.
        AddBeforeItFollows,
        /// The majority of the next configuration is not checked.
        IgnoreTheNewMajority,
        /// A listed voter that does not run is removed.
        RemoveListed,
        /// A voter leaves only when every joiner has joined.
        WaitForJoiners,
        /// Voters of a cluster that leaves as a whole leave before as many follow as the list names.
        NoFloor,
        /// A dead voter leaves although the majority stays as large, and a server that joins is awaited.
        DeadFirstAlways,
        /// A dead voter leaves only if the majority is smaller without it, although no server is awaited or one needs its place.
        KeepDead,
        /// Leaving servers are removed before joining servers are added.
        RemoveFirst,
        /// A step does not name the configuration that it was decided on.
        Unconditional,
    }
    /// Variants of `agent::decide::restart`.
    RESTART {
        /// A serving voter restarts without the restart lock.
        WithoutLock,
        /// The agent restarts a serving voter while another voter does not serve.
        WhileAnotherIsDown,
        /// The agent restarts the next voter before the last one serves again.
        TwoAtOnce,
        /// The agent does not restart the leader last.
        LeaderFirst,
        /// The agent restarts the leader although another voter has only just returned.
        LeaderSoon,
        /// A server that does not answer counts as not serving.
        BelieveUnanswered,
        /// The agent stops without the lock what runs and cannot be asked.
        StopUnasked,
        /// The agent stops a voter that follows without the lock, because its disk is slow.
        StopSlowVoter,
        /// The agent restarts one of two voters although others are about to join.
        OfTwoVoters,
        /// The agent restarts a server that stopped answering a moment ago and is not ready.
        AtOnce,
        /// The agent restarts a serving server on a drained node although no other node fits it.
        StrandServer,
    }
    /// Variants of `agent::decide::first_start`.
    FIRST_START {
        /// The agent records another volume for the first start of a server that may have voted.
        RecordAgain,
        /// The agent releases the object of a bootstrap, and with its status the first starts.
        ForgetFirstStarts,
        /// The agent takes a server for new whose first start went with the status of an earlier object.
        ForgetRecreated,
    }
    /// Variants of `rollout::rebootstrap` about volumes.
    REBOOTSTRAP {
        /// S5: a rebootstrap begins although a server of the first bootstrap began with another volume than it has now.
        BelieveWiped,
    }
    /// Variants of `agent::decide::replace`.
    REPLACE {
        /// S13: the agent deletes a claim of the server that the request does not name.
        ReplaceOtherClaim,
        /// S13: the agent deletes a volume without the restart lock.
        ReplaceWithoutLock,
        /// S13: the agent deletes a volume although the others are no majority that serves, or one of them lacks its volume.
        ReplaceLastCopy,
    }
    /// Variants of `agent::decide::quorum`.
    QUORUM {
        /// A leader that was cut off counts as leader although another server follows a newer one.
        BelieveOldLeader,
        /// A voter that the agent cannot ask counts as dead, although the leader counts it.
        BuryUnseen,
    }
    /// Variants of the rules about what lived before the object (S14), or before the backup of its control plane.
    FORMER {
        /// S14: the first server starts although another incarnation of the name lives.
        BeginBesideOther,
        /// S14: an ensemble continues a former incarnation before every cluster of it has reported.
        AdoptWithoutReport,
        /// S4: the operator of a restored control plane keeps its server list, although an agent reports a newer one.
        ForgetNewerList,
        /// S1: an agent follows the cluster spec of a restored control plane, which is older than the one that it has accepted.
        AcceptOlderSpec,
        /// S14: an empty ensemble takes the Service from an incarnation that lives.
        EmptyTakesService,
        /// S14: the volumes of an incarnation that a user declares over are deleted if the new object says so.
        ReclaimDeclared,
    }
    /// Variants of the rules by which listed voters lose their votes (S15, S16), in `agent::decide::missing`, `membership`, `restart` and
    /// `server::permitted_step`.
    DEMOTION {
        /// S15: the time of a voter that the agent has seen again goes on.
        DemoteWhatFollows,
        /// S15: a voter that only the agent misses loses its vote.
        IgnoreLeadersCount,
        /// S15: a time goes on although agent and leader have disagreed for long.
        KeepTimer,
        /// S15: the server that the restart lock names loses its vote.
        DemoteLocked,
        /// S16: a missing voter loses its vote although as many voters make a majority without it.
        DemoteWithoutGain,
        /// S15: the control port does not ask how long its own server has missed voters.
        PermitUnmeasured,
        /// S15: the control port does not ask the server that would lose its vote.
        PermitFollower,
        /// S15, S16: the control port takes a vote although no voter is missing, or although fewer votes gain nothing.
        PermitMore,
        /// S15: the restart lock is released although its server has lost its vote while it was down.
        ReleaseDemoted,
    }
    /// Variants of `rollout::failover`: where the voters of a cluster are.
    FAILOVER {
        /// Voters move although they follow: Karmada does not reach their cluster.
        MoveOnNotReady,
        /// A second cluster gets another place before the server list names the first one.
        MoveTwo,
        /// The server list follows a move without a request and without a second look at the voters.
        MoveBlind,
        /// Voters move to a spare whose API server would refuse them.
        BelieveSpare,
        /// The time of a loss runs on while the signals are broken.
        KeepLoss,
        /// Voters at a spare never go home by themselves.
        MoveForEver,
        /// A move divides the voters of all clusters again.
        DivideAgain,
        /// The operator forgets which spare holds whose voters.
        ForgetMoved,
        /// The annotation of a user does not count.
        IgnoreRequest,
        /// Voters move although the user has paused the rollout.
        IgnorePause,
        /// The annotation of a restored control plane is carried out a second time.
        RepeatRequest,
    }
    /// Variants of `server::permitted_step`.
    PERMITTED_STEP {
        /// The control port takes a step that the server list does not ask for.
        PermitAnyStep,
        /// S13: a voter leaves although the server with the restart lock, which may be about to stop, is needed then.
        StepBesideLock,
    }
    /// Variants of `server::start`.
    START {
        /// A bootstrap although the list is no bootstrap list.
        BootstrapAlways,
        /// A bootstrap on a volume that held another incarnation or id.
        BootstrapOnUsed,
        /// An empty server that may have voted before may vote although a quorum formed.
        InitializeLate,
        /// Liveness: a server that certainly never voted may not vote because a quorum formed without it.
        LateWithoutVote,
        /// A server whose volume is lost starts again under its id.
        IgnoreLost,
        /// An id that voted gets a vote again although its volume is lost.
        RelistLost,
        /// A joiner starts with a vote.
        JoinAsVoter,
        /// A joiner lists the other joiners too.
        JoinWithOthers,
        /// A server serves data of another incarnation.
        KeepForeign,
        /// A server serves data of another id.
        KeepOtherId,
        /// A server that neither its configuration nor the list names starts as an observer.
        StartRemoved,
        /// A server without a living configuration joins by the server list.
        JoinByList,
        /// A suspended server starts.
        StartSuspended,
        /// A server that never joined a quorum starts by a list that it cannot read.
        StartUnread,
        /// A server starts by an older list.
        OlderList,
        /// A bootstrap continues although its list changed.
        ChangedBootstrap,
        /// A server whose pod has another id sets aside data that it still votes with.
        AbandonVote,
        /// An empty server of a bootstrap keeps its configuration, although it has used its right to vote.
        KeepEmpty,
        /// A server votes with the volume of another pod.
        ServeSwapped,
        /// A server votes although other servers know a newer generation of its volume.
        BelieveOldVolume,
        /// A server votes although its files end before a transaction that it acknowledged.
        BelieveShortLog,
        /// A server votes although its logs skip transactions.
        BelieveGap,
        /// A server votes before a majority has reported what it knows of the volume.
        VoteUnconfirmed,
        /// A voter that never joined a quorum votes after the bootstrap, and asks no other server.
        BelieveNeverJoined,
        /// An empty server of a bootstrap votes although it may have voted before, with a volume that is lost or an old copy.
        BeginUnrecorded,
        /// Servers that may have lost their own volumes prove that no quorum formed.
        BelieveAskers,
        /// A server that copies first votes when its `ZooKeeper` starts again, although it has copied nothing.
        VoteAgain,
        /// A server that copies first starts without a record, so it counts as new after it has lost its volume.
        CopyUnrecorded,
        /// Liveness: voters that have left must confirm the age of a volume.
        CountFormerVoters,
        /// A server votes although its files cannot be read.
        BelieveUnreadable,
    }
    /// Variants of how `server` confirms the age of a volume.
    CONFIRM {
        /// A server starts once a majority has answered, although a late answer may know a newer generation of its volume.
        StopAsking,
        /// A process takes any volume for the one on which it has run `ZooKeeper`.
        BelieveProcess,
    }
    /// Variants of `server::files`.
    FILES {
        /// The name of a partial snapshot counts as data.
        BelievePartialSnapshot,
    }
    /// Variants of `server::volume`, at a power loss.
    VOLUME {
        /// A file gets its name before its bytes are durable.
        UnsyncedFile,
        /// A name is used before it is durable.
        UnsyncedName,
        /// The names of a server's new folders are not durable when it starts.
        UnsyncedFolders,
        /// A log without its first transaction stays.
        KeepEmptyLog,
        /// The first snapshot counts as data before the first epoch, complete or not.
        CountFirstSnapshot,
        /// `ZooKeeper` does not begin with the first log if no snapshot is complete.
        NeedSnapshot,
        /// The epoch that `ZooKeeper` entered stays older than its files.
        KeepOldEpoch,
    }
}

/// Resets the active variant of this thread when dropped.
#[cfg(feature = "mutations")]
#[must_use]
#[derive(Debug)]
pub struct Active(Option<Mutation>);

#[cfg(feature = "mutations")]
impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.set(self.0);
    }
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Breaks the rule in this thread until the returned value is dropped.
    pub fn activate(self) -> Active {
        Active(ACTIVE.replace(Some(self)))
    }

    /// Runs `rule` with this variant active; with none if `mutation` is `None`.
    pub fn with<T>(mutation: Option<Self>, rule: impl FnOnce() -> T) -> T {
        let _active = Active(ACTIVE.replace(mutation));
        rule()
    }

    /// True if the test of this thread breaks this rule.
    #[must_use]
    pub fn is_active(self) -> bool {
        ACTIVE.get() == Some(self)
    }
}
