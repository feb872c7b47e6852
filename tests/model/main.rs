//! An exhaustive search over the real pure core: `plan` is asked, not imitated, in a small world of Karmada and reports.
//!
//! [`state`] is the whole world; [`operator`], [`karmada`] and [`member`] are who acts in it; [`properties`] what must hold;
//! [`configurations`] the worlds that are searched, and the tests.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::struct_excessive_bools,
    clippy::must_use_candidate,
    clippy::missing_panics_doc,
    clippy::type_complexity,
    clippy::single_match_else,
    missing_docs
)]

mod configurations;
mod karmada;
mod member;
mod operator;
mod properties;
mod state;

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
};

use mczk::{
    api::{
        ZooKeeper,
        karmada::policy::OverridePolicy,
        multiclusterzookeeper::{MultiClusterZooKeeperSpec, RecordStatus},
        zookeeper::ZooKeeperSpec,
    },
    mutation::Mutation,
};
use stateright::{Model, Property};

use crate::{
    operator::{Known, Outcome},
    properties::Rule,
    state::{ClusterReport, Object, Shared, State, Truth},
};

/// What may go wrong; each time it does costs one of the configuration's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operator is slow, and may crash or lose its update between any two writes.
    Slow,
    /// A record's deadline passes.
    Deadline,
    /// Karmada does not reach a cluster, whose agent and servers go on.
    Disconnect(usize),
    /// A cluster is lost, and comes back.
    Lose(usize),
    /// A person wipes the status.
    StatusWiped,
    /// A person deletes the OverridePolicy.
    OverridesDeleted,
    /// A person deletes the PropagationPolicy.
    PolicyDeleted,
    /// A person deletes a Work.
    WorkDeleted(usize),
    /// For a while no cluster fits.
    EmptySchedule,
    /// The scheduler moves a cluster's voters to the others.
    Evict(usize),
    /// The interpreter's registration goes, and comes back.
    Unregister,
    /// A server's volume is gone.
    LoseVolume(usize),
}

/// One world to be searched.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub name: &'static str,
    /// What the person declares, one after the other.
    pub specs: Vec<MultiClusterZooKeeperSpec>,
    pub clusters: usize,
    /// Whether the first spec is rolled out before the search begins.
    pub running: bool,
    /// Faults that may happen, in total.
    pub faults: u8,
    pub kinds: Vec<Fault>,
    /// Whether Karmada takes its time: detector, scheduler, Works, reports and the agents' looks at their objects then come in
    /// every order; else they are done before anybody else acts, and only what cannot be reached is old.
    pub late: bool,
    pub deleted: bool,
    pub foreign: bool,
    /// Clusters that never come back when they are lost: a person then declares the last spec.
    pub gone: Vec<usize>,
    /// Clusters that a person gives up with the second spec.
    pub abandoned: Vec<usize>,
    /// Clusters that serve our kinds only later.
    pub late_kinds: Vec<usize>,
    /// Clusters where a Secret arrives late.
    pub late_secret: Vec<usize>,
}

/// A world, with what was computed in it before.
pub struct World {
    pub setup: Setup,
    pub mutation: Option<Mutation>,
    pub plans: Mutex<HashMap<Known, Shared<Outcome>>>,
    #[allow(clippy::type_complexity)]
    pub rendered:
        Mutex<HashMap<(Shared<ZooKeeper>, Option<Shared<OverridePolicy>>, usize, bool), Shared<ZooKeeperSpec>>>,
    pub obeyed: Mutex<HashMap<(Shared<ZooKeeperSpec>, usize), bool>>,
    /// States from which everything comes to a good end.
    good: Mutex<HashSet<u64>>,
}

impl World {
    pub fn new(setup: Setup, mutation: Option<Mutation>) -> Self {
        Self {
            setup,
            mutation,
            plans: Mutex::default(),
            rendered: Mutex::default(),
            obeyed: Mutex::default(),
            good: Mutex::default(),
        }
    }

    fn fresh(&self) -> State {
        let member = |cluster: usize| ClusterReport {
            serves: !self.setup.late_kinds.contains(&cluster),
            ready: true,
            alive: true,
            lacks_secret: self.setup.late_secret.contains(&cluster),
            ..ClusterReport::default()
        };
        State {
            object: Some(Object { spec: 0, generation: 1, finalizer: false, deleting: false, status: None }),
            overrides: None,
            policy: None,
            services: std::collections::BTreeMap::new(),
            template: self.setup.foreign.then(|| operator::foreign_template(self)),
            binding: None,
            registered: true,
            reports: (0..self.setup.clusters).map(member).collect(),
            truth: Truth::default(),
            ended: std::collections::BTreeSet::new(),
            operator: None,
            late: false,
            faults: 0,
            to_delete: false,
            broken: None,
        }
    }

    /// Goes on without faults until nothing moves: the operator first, then Karmada, then reports, in turn.
    ///
    /// The end is good if the desired state holds and nothing is written any more. The order is one of many; since every
    /// reached state is tried, many orders are.
    ///
    /// # Errors
    /// The rule that was broken on the way, or the end that was not reached.
    pub fn settle(&self, state: &State) -> Result<State, Rule> {
        let mut state = healed(self, state);
        let mut passed = Vec::new();
        for _ in 0..600 {
            if let Some(rule) = state.broken {
                if std::env::var("MODEL_SHOW").is_ok() {
                    self.show(&state);
                }
                return Err(rule);
            }
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            let print = hasher.finish();
            if self.good.lock().expect("no panic while held").contains(&print) {
                self.good.lock().expect("no panic while held").extend(passed);
                return Ok(state);
            }
            passed.push(print);
            if let Some(next) = self.forward(&state) {
                state = next;
            } else if properties::reached(self, &state) {
                self.good.lock().expect("no panic while held").extend(passed);
                return Ok(state);
            } else if state.late {
                if std::env::var("MODEL_SHOW").is_ok() {
                    self.show(&state);
                }
                return Err(Rule::Reached);
            } else {
                state.late = true;
            }
        }
        Err(Rule::Rest)
    }

    /// Prints a state, for whoever looks for the reason of a failure.
    pub fn show(&self, state: &State) {
        println!("{state:#?}");
        if let Some(object) = &state.object {
            println!("{}", serde_json::to_string_pretty(&object.status.as_ref().map(Shared::get)).expect("JSON"));
        }
        for member in &state.reports {
            println!("{}", serde_json::to_string(&member.list.as_ref().map(Shared::get)).expect("JSON"));
            println!("{}", serde_json::to_string(&member.spec.as_ref().map(Shared::get)).expect("JSON"));
        }
        for write in operator::outcome(self, state).iter().flat_map(|o| &o.get().writes) {
            println!("would write {write:?}");
        }
    }

    /// The next step of a world without faults.
    fn forward(&self, state: &State) -> Option<State> {
        let mut order = vec![Action::Run, Action::Detect, Action::Schedule];
        order.extend((0..self.setup.clusters).map(Action::Sync));
        order.push(Action::Collect);
        order.extend((0..self.setup.clusters).map(Action::Report));
        order.push(Action::Reconfigure);
        order.extend((0..self.setup.clusters).map(Action::Agent));
        order.into_iter().find_map(|action| self.act(state, action).filter(|next| next != state))
    }

    #[allow(clippy::too_many_lines)]
    fn act(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let done = match action {
            Action::Run => {
                operator::run(self, &mut state);
                state != *before
            }
            Action::Write => operator::go_on(self, &mut state),
            Action::Crash => state.operator.take().is_some(),
            Action::Change => {
                let object = state.object.as_mut()?;
                object.spec += 1;
                object.generation += 1;
                true
            }
            Action::Delete => {
                state.to_delete = false;
                let object = state.object.as_mut()?;
                object.deleting = true;
                object.generation += 1;
                if !object.finalizer {
                    state.object = None;
                }
                true
            }
            Action::Detect => karmada::detect(&mut state),
            Action::Schedule => karmada::schedule(&mut state),
            Action::Collect => karmada::collect(&mut state),
            Action::Register => {
                state.registered = true;
                true
            }
            Action::Sync(cluster) => karmada::sync(self, &mut state, cluster),
            Action::Report(cluster) => karmada::report(&mut state, cluster),
            Action::Agent(cluster) => member::step(self, &mut state, cluster),
            Action::Reconfigure => member::reconfigure(&mut state),
            Action::Return(cluster) => {
                let member = &mut state.reports[cluster];
                member.ready = true;
                member.alive = true;
                true
            }
            Action::Kinds(cluster) => {
                state.reports[cluster].serves = true;
                true
            }
            Action::Secret(cluster) => {
                state.reports[cluster].lacks_secret = false;
                true
            }
            Action::Fault(fault) => {
                state.faults -= 1;
                self.fail(&mut state, fault)
            }
        };
        done.then_some(state)
    }

    fn fail(&self, state: &mut State, fault: Fault) -> bool {
        match fault {
            Fault::Slow => operator::begin(self, state),
            Fault::Deadline => {
                let going = state
                    .object
                    .as_ref()
                    .and_then(|o| o.status.as_ref())
                    .and_then(|s| s.get().records.last())
                    .is_some_and(|r| r.status == RecordStatus::Deploying);
                !std::mem::replace(&mut state.late, true) && going
            }
            Fault::Disconnect(cluster) => std::mem::replace(&mut state.reports[cluster].ready, false),
            Fault::Lose(cluster) => {
                let member = &mut state.reports[cluster];
                member.alive = false;
                std::mem::replace(&mut member.ready, false)
            }
            Fault::StatusWiped => state.object.as_mut().and_then(|o| o.status.take()).is_some(),
            Fault::OverridesDeleted => state.overrides.take().is_some(),
            Fault::PolicyDeleted => state.policy.take().is_some(),
            Fault::WorkDeleted(cluster) => {
                let had = state.reports[cluster].work.is_some();
                karmada::remove_work(state, cluster);
                had
            }
            Fault::EmptySchedule => karmada::empty(state),
            Fault::Evict(cluster) => karmada::evict(state, cluster),
            Fault::Unregister => std::mem::replace(&mut state.registered, false),
            Fault::LoseVolume(cluster) => {
                let (voters, life) = (state.truth.voters.clone(), state.truth.life);
                match state.reports[cluster].servers.first_mut() {
                    Some(server) if !server.lost && server.life == life && voters.contains(&server.id) => {
                        server.lost = true;
                        server.up = false;
                        true
                    }
                    _ => false,
                }
            }
        }
    }
}

/// The world when all faults are over. A person who declared what cannot run declares what can.
fn healed(world: &World, state: &State) -> State {
    let mut state = state.clone();
    state.operator = None;
    state.faults = 0;
    state.registered = true;
    state.late = false;
    state.to_delete = false;
    let gone = |cluster: usize, member: &ClusterReport| world.setup.gone.contains(&cluster) && !member.alive;
    if state.reports.iter().enumerate().any(|(cluster, member)| gone(cluster, member))
        && let Some(object) = &mut state.object
    {
        let left = world.setup.specs.len() - 1 - object.spec;
        object.generation += i64::try_from(left).expect("few specs");
        object.spec += left;
    }
    for (cluster, member) in state.reports.iter_mut().enumerate() {
        if !gone(cluster, member) {
            member.ready = true;
            member.alive = true;
        }
        member.serves = true;
        member.lacks_secret = false;
    }
    if let Some(object) = &mut state.object {
        while world.setup.specs[object.spec].template.image == member::BAD_IMAGE
            && object.spec + 1 < world.setup.specs.len()
        {
            object.spec += 1;
            object.generation += 1;
        }
    }
    state
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The operator: a whole step.
    Run,
    /// The operator: the next write of a slow step.
    Write,
    /// The operator: the end of a slow step.
    Crash,
    /// The person: the next spec.
    Change,
    /// The person: deletes the object.
    Delete,
    Detect,
    Schedule,
    Collect,
    Register,
    Sync(usize),
    Report(usize),
    Agent(usize),
    Reconfigure,
    Return(usize),
    Kinds(usize),
    Secret(usize),
    Fault(Fault),
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = self.fresh();
        if self.setup.running {
            // The way there is another configuration's; here it is only the beginning, under the rules as they are.
            let sound = Self::new(self.setup.clone(), None);
            state = sound.settle(&state).expect("the first spec is rolled out");
        }
        state.faults = self.setup.faults;
        state.to_delete = self.setup.deleted;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        if state.operator.is_some() {
            actions.extend([Action::Write, Action::Crash]);
        } else {
            actions.push(Action::Run);
        }
        if let Some(object) = state.object.as_ref().filter(|o| !o.deleting) {
            if object.spec + 1 < self.setup.specs.len() {
                actions.push(Action::Change);
            }
            if state.to_delete {
                actions.push(Action::Delete);
            }
        }
        actions.push(Action::Reconfigure);
        if self.setup.late {
            actions.extend([Action::Detect, Action::Schedule, Action::Collect]);
        }
        if !state.registered {
            actions.push(Action::Register);
        }
        for (cluster, member) in state.reports.iter().enumerate() {
            actions.push(Action::Agent(cluster));
            if self.setup.late {
                actions.extend([Action::Sync(cluster), Action::Report(cluster)]);
            }
            let gone = !member.alive && self.setup.gone.contains(&cluster);
            let well = member.ready && member.alive;
            if !gone && !well {
                actions.push(Action::Return(cluster));
            }
            if !member.serves {
                actions.push(Action::Kinds(cluster));
            }
            if member.lacks_secret {
                actions.push(Action::Secret(cluster));
            }
        }
        if state.faults > 0 {
            let possible = |f: &&Fault| **f != Fault::Slow || state.operator.is_none();
            actions.extend(self.setup.kinds.iter().filter(possible).map(|f| Action::Fault(*f)));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = self.act(state, action)?;
        properties::check_state(&mut next);
        while !self.setup.late && next.broken.is_none() {
            let mut moved = karmada::detect(&mut next) | karmada::schedule(&mut next);
            for cluster in 0..self.setup.clusters {
                moved |= karmada::sync(self, &mut next, cluster);
                moved |= member::see(self, &mut next, cluster);
            }
            moved |= karmada::collect(&mut next);
            for cluster in 0..self.setup.clusters {
                moved |= karmada::report(&mut next, cluster);
            }
            if !moved {
                break;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no rule is broken", |_, state: &State| state.broken.is_none()),
            Property::always(
                "when faults stop, what is declared comes and then rests",
                |world: &World, state: &State| state.broken.is_some() || world.settle(state).is_ok(),
            ),
        ]
    }
}
