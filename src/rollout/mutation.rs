//! Deliberately broken variants of the rules, one for each rule that keeps data or quorum.
//!
//! The search over all reachable states runs once with every variant, and a test fails if it finds nothing wrong with one:
//! a rule that can be broken unseen is not tested. Outside tests there is only [`Mutation::None`].

/// Which rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    /// None: the rules as they are.
    #[default]
    None,
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
}

impl Mutation {
    /// All of them.
    pub const BROKEN: &[Self] = &[
        Self::NextBeforeComplete,
        Self::LowerBeforeRemoved,
        Self::ListWithoutQuorum,
        Self::BeginWithoutQuorum,
        Self::ReuseIds,
        Self::AllocateBeforeReports,
        Self::ListDuringBootstrap,
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
        Self::NoJoinersFirst,
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

    /// Whether this rule is the broken one.
    #[must_use]
    pub fn is(self, rule: Self) -> bool {
        self == rule
    }
}
