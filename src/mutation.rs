//! Deliberately broken variants of the safety rules. They prove that the tests find each broken rule.
//!
//! A rule asks `broken!(Variant)`. Without the feature `mutations` that is the constant `false`, and release builds refuse
//! the feature. With it, a test activates one variant for its own thread by [`Mutation::activate`].

#[cfg(any(test, feature = "mutations"))]
use std::cell::Cell;

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("the feature `mutations` breaks safety rules on purpose: never build a release with it");

/// True if the test of this thread breaks the rule by this variant. A constant `false` outside tests.
macro_rules! broken {
    ($variant:ident) => {{
        #[cfg(any(test, feature = "mutations"))]
        {
            $crate::mutation::Mutation::$variant.is_active()
        }
        #[cfg(not(any(test, feature = "mutations")))]
        {
            false
        }
    }};
}
pub(crate) use broken;

#[cfg(any(test, feature = "mutations"))]
thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// The rule that is broken, by variant.
#[cfg(any(test, feature = "mutations"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    // Of `rollout`.
    /// S1: the next cluster begins although one is being changed.
    NextBeforeComplete,
    /// S2: replicas are lowered although the ensemble still counts the servers as voters.
    LowerBeforeRemoved,
    /// S3, S9: the list of servers changes although no quorum is seen.
    ListWithoutQuorum,
    /// S3: a cluster begins although its restarts would leave no quorum.
    BeginWithoutQuorum,
    /// S4: an id goes to the next server that asks.
    ReuseIds,
    /// S4: ids are allocated before every known cluster reported, after the policy was lost.
    AllocateBeforeReports,
    /// S5: the list changes before a quorum formed.
    ListDuringBootstrap,
    /// Liveness: a cluster that keeps servers which others must let go lets none begin that bring some.
    NoJoinersFirst,
    /// S6: a change of the template reaches every cluster that is in use at once.
    PinEveryone,
    /// S6: a change of the MultiClusterZooKeeper goes into the template while a record rolls.
    TemplateDuringRecord,
    /// S7: an object that is not ours is taken over.
    AdoptForeign,
    /// S8: a report is believed although its cluster cannot be reached.
    BelieveUnreachable,
    /// S8: a report is believed although it speaks of another pin.
    BelieveOtherPin,
    /// (R): a schedule is believed although its binding is not settled.
    BelieveUnsettled,
    /// (R): clusters are chosen before all of them serve our kinds.
    IgnoreEnablements,
    /// (R): the first rule of the policy, which holds every cluster at 0, is left out.
    NoZeroRule,
    /// (R): members lose their objects when a Work goes.
    NoPreserve,
    /// (R): the list of servers travels with the pins, cluster by cluster.
    ListInTurns,
    /// (R): the template goes before every cluster reported that it dissolved.
    DeleteBeforeDissolved,
    /// (R): the template goes before every Work shows that nothing is preserved.
    DeleteBeforeReleased,
    /// S1: a record that takes the place of one that stood still does not begin where that one stood.
    BeginElsewhere,
    /// S1: a cluster that the schedule left while it was changing is not waited for.
    ForgetTheLeaving,
    /// S6: the pins of a lost policy are taken for what the template will be.
    RecoverTheWanted,
    /// A list that is found again keeps its epoch, under which another one may be known.
    SameEpoch,
    /// S5: the bootstrap is over when its record is, also without a quorum.
    ThawUnformed,
    /// (R): with the policy lost, what members run is not dissolved.
    DissolveOnlyTheKnown,
    /// Before a majority is started, a cluster counts only when it serves (`ZooKeeper` never does): nothing ever ends.
    ServeBeforeMajority,
    /// A record that is done is taken up again instead of appending one: nothing is ever deployed again.
    TakeUpReady,
    /// S8: a pin that is given again has the name that it had before.
    SameTurn,
    /// S5: another life begins although the servers of the first one were not parked.
    BeginUnparked,
    /// S5: another life begins although a cluster has not reported that its servers are parked.
    BelieveTheSilent,
    /// S5: another life begins although a server accepted an epoch in the first one.
    ForgetAccepted,
    /// A wiped status begins again with an empty record.
    ForgetRecords,
    // Of `rollout::certificates`.
    /// No step waits for the one before.
    SkipWait,
    /// The former authority is not trusted any more before every cluster shows the new identity.
    TrustNewOnlyTooEarly,
    /// The new identity is shown before its authority is trusted.
    IdentityBeforeTrust,
    /// A cluster that cannot be asked is not waited for.
    ForgetTheAbsent,
    /// What was asked for and done is done again.
    AskedForEver,
    /// An identity that got lost is made under the newest authority that the list trusts.
    LostIdentityUnderTheNewest,
    // Of `agent::decide::membership`.
    /// The agent takes a step although no majority follows.
    WithoutQuorum,
    /// The agent adds a server before it follows.
    AddBeforeItFollows,
    /// The agent ignores the majority of the configuration after the step.
    IgnoreTheNewMajority,
    /// The agent removes a listed voter that does not follow.
    DropTheListed,
    /// A voter leaves only after every server that joins has joined.
    WaitForJoiners,
    /// Unlisted voters leave, however few remain.
    NoFloor,
    /// Servers leave before others join.
    LeaversFirst,
    /// The step does not carry the version of the configuration that it was decided on.
    Unconditional,
    // Of `agent::decide::restart`.
    /// A serving voter restarts without the restart lock.
    WithoutLock,
    /// A serving voter restarts while another one does not serve.
    WhileAnotherIsDown,
    /// A server restarts before the last one is back.
    TwoAtOnce,
    /// The leader does not restart last.
    LeaderFirst,
    /// The leader restarts although another voter has just come back.
    LeaderSoon,
    /// A server that does not answer counts as not serving.
    BelieveSilence,
    /// One of two voters restarts although others are about to join.
    OfTooFew,
    /// A server that answered until just now, and that the kubelet does not find ready, restarts at once.
    AtOnce,
    // Of `server::start`.
    /// A bootstrap although the list is no bootstrap list.
    BootstrapAlways,
    /// A bootstrap on a volume that held another incarnation or id.
    BootstrapOnUsed,
    /// An empty server may vote although a quorum formed without it.
    InitializeLate,
    /// A server whose volume is lost starts again under its id.
    IgnoreLost,
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
    /// A server starts by an older list.
    OlderList,
    /// A bootstrap continues although its list changed.
    ChangedBootstrap,
    /// A server whose pod has another id sets aside data that it still votes with.
    AbandonVote,
}

/// Resets the active variant of this thread when dropped.
#[cfg(any(test, feature = "mutations"))]
#[must_use]
#[derive(Debug)]
pub struct Active(Option<Mutation>);

#[cfg(any(test, feature = "mutations"))]
impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.set(self.0);
    }
}

#[cfg(any(test, feature = "mutations"))]
impl Mutation {
    /// Variants of `rollout`.
    pub const ROLLOUT: &[Self] = &[
        Self::NextBeforeComplete,
        Self::LowerBeforeRemoved,
        Self::ListWithoutQuorum,
        Self::BeginWithoutQuorum,
        Self::ReuseIds,
        Self::AllocateBeforeReports,
        Self::ListDuringBootstrap,
        Self::NoJoinersFirst,
        Self::PinEveryone,
        Self::TemplateDuringRecord,
        Self::AdoptForeign,
        Self::BelieveUnreachable,
        Self::BelieveOtherPin,
        Self::BelieveUnsettled,
        Self::IgnoreEnablements,
        Self::NoZeroRule,
        Self::NoPreserve,
        Self::ListInTurns,
        Self::DeleteBeforeDissolved,
        Self::DeleteBeforeReleased,
        Self::BeginElsewhere,
        Self::ForgetTheLeaving,
        Self::RecoverTheWanted,
        Self::SameEpoch,
        Self::ThawUnformed,
        Self::DissolveOnlyTheKnown,
        Self::ServeBeforeMajority,
        Self::TakeUpReady,
        Self::SameTurn,
        Self::BeginUnparked,
        Self::BelieveTheSilent,
        Self::ForgetAccepted,
        Self::ForgetRecords,
    ];
    /// Variants of `rollout::certificates`.
    pub const CERTIFICATES: &[Self] = &[
        Self::SkipWait,
        Self::TrustNewOnlyTooEarly,
        Self::IdentityBeforeTrust,
        Self::ForgetTheAbsent,
        Self::AskedForEver,
        Self::LostIdentityUnderTheNewest,
    ];
    /// Variants of `agent::decide::membership`.
    pub const MEMBERSHIP: &[Self] = &[
        Self::WithoutQuorum,
        Self::AddBeforeItFollows,
        Self::IgnoreTheNewMajority,
        Self::DropTheListed,
        Self::WaitForJoiners,
        Self::NoFloor,
        Self::LeaversFirst,
        Self::Unconditional,
    ];
    /// Variants of `agent::decide::restart`.
    pub const RESTART: &[Self] = &[
        Self::WithoutLock,
        Self::WhileAnotherIsDown,
        Self::TwoAtOnce,
        Self::LeaderFirst,
        Self::LeaderSoon,
        Self::BelieveSilence,
        Self::OfTooFew,
        Self::AtOnce,
    ];
    /// Variants of `server::start`.
    pub const START: &[Self] = &[
        Self::BootstrapAlways,
        Self::BootstrapOnUsed,
        Self::InitializeLate,
        Self::IgnoreLost,
        Self::JoinAsVoter,
        Self::JoinWithOthers,
        Self::KeepForeign,
        Self::KeepOtherId,
        Self::StartRemoved,
        Self::JoinByList,
        Self::StartSuspended,
        Self::OlderList,
        Self::ChangedBootstrap,
        Self::AbandonVote,
    ];

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
