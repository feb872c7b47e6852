//! An exhaustive search of small worlds of Karmada and member clusters. The operator is the real `plan`.
//!
//! [`state`] is the state of a world. [`operator`], [`writes`], [`karmada`], [`member`], [`replace`], [`faults`] and
//! [`hands`] change it.
//! [`properties`] are the rules that must hold. [`configurations`] has the worlds, [`searches`] the tests.

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
    missing_docs,
    clippy::disallowed_methods
)]

mod configurations;
mod faults;
mod hands;
mod karmada;
mod member;
mod operator;
mod properties;
mod replace;
mod searches;
mod state;
mod writes;

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, OnceLock},
};

use mczk_api::{
    ZooKeeper, karmada::policy::OverridePolicy, multiclusterzookeeper::MultiClusterZooKeeperSpec, mutation::Mutation,
    zookeeper::ZooKeeperSpec,
};
use stateright::{Model, Property};

use crate::{
    faults::{Fault, healed},
    member::{Decided, Scene},
    operator::{Known, Outcome},
    properties::Rule,
    state::{MemberCluster, Object, Shared, State, Truth},
};

/// With the allocator of the system the search took a third longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A world that is searched.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub name: &'static str,
    /// The specs that the user declares, in this order.
    pub specs: Vec<MultiClusterZooKeeperSpec>,
    pub clusters: usize,
    /// True if the first spec is rolled out before the search begins.
    pub running: bool,
    /// The greatest number of faults.
    pub faults: u8,
    pub kinds: Vec<Fault>,
    /// True if Karmada and the agents' acceptance of specs are slow: the search tries every order of their steps. Otherwise
    /// they finish before any other step, and only unreachable clusters are out of date.
    pub late: bool,
    pub deleted: bool,
    pub foreign: bool,
    /// Clusters that never return after they are lost. The user then declares the last spec.
    pub gone: Vec<usize>,
    /// Clusters that the user abandons with the second spec.
    pub abandoned: Vec<usize>,
    /// What the user says of the servers that live on after the control plane was lost.
    pub says: Option<Says>,
    /// True if the user wants a volume replaced, with the second spec.
    pub replaces: bool,
    /// Clusters that serve the kinds of the operator only later.
    pub late_kinds: Vec<usize>,
    /// Clusters that a Secret reaches late.
    pub late_secret: Vec<usize>,
}

/// What becomes of the incarnation of a lost control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The object that is created again continues it.
    Adopt,
    /// It is over.
    Over,
}

/// A world, and results that its states share.
pub struct World {
    pub setup: Setup,
    pub mutation: Option<Mutation>,
    pub plans: Mutex<HashMap<Known, Shared<Outcome>>>,
    #[allow(clippy::type_complexity)]
    pub rendered:
        Mutex<HashMap<(Shared<ZooKeeper>, Option<Shared<OverridePolicy>>, usize, bool), Shared<ZooKeeperSpec>>>,
    pub decisions: Mutex<HashMap<Scene, Arc<Decided>>>,
    /// States from which the world completes.
    good: Mutex<HashSet<u64>>,
    /// The state at the beginning of the search, of which a backup of the control plane exists.
    pub copy: OnceLock<State>,
}

impl World {
    pub fn new(setup: Setup, mutation: Option<Mutation>) -> Self {
        Self {
            setup,
            mutation,
            plans: Mutex::default(),
            rendered: Mutex::default(),
            decisions: Mutex::default(),
            good: Mutex::default(),
            copy: OnceLock::new(),
        }
    }

    fn fresh(&self) -> State {
        let member = |cluster: usize| MemberCluster {
            serves: !self.setup.late_kinds.contains(&cluster),
            ready: true,
            joined: true,
            alive: true,
            lacks_secret: self.setup.late_secret.contains(&cluster),
            ..MemberCluster::default()
        };
        State {
            object: Some(Object::default()),
            overrides: None,
            policy: None,
            services: std::collections::BTreeMap::new(),
            template: self.setup.foreign.then(|| operator::foreign_template(self)),
            binding: None,
            registered: true,
            members: (0..self.setup.clusters).map(member).collect(),
            truth: Truth::default(),
            tombstones: std::collections::BTreeSet::new(),
            term: 1,
            acted: 0,
            operators: Vec::new(),
            asleep: false,
            templates: 0,
            late: false,
            faults: 0,
            to_delete: false,
            broken: None,
        }
    }

    /// Continues without faults until nothing changes: first the operator, then Karmada, then the member clusters.
    ///
    /// The world must then be as declared, and the operator must write nothing more. This tries one order of steps. The search
    /// calls it for every state that it reaches, so it tries many.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn settle(&self, state: &State) -> Result<State, Rule> {
        let mut state = healed(self, state);
        let mut passed = Vec::new();
        for _ in 0..600 {
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            let print = hasher.finish();
            let known = self.good.lock().expect("no panic while held").contains(&print);
            passed.push(print);
            if let Some(rule) = state.broken {
                return Err(self.show(&state, rule));
            } else if known {
                self.good.lock().expect("no panic while held").extend(passed);
                return Ok(state);
            } else if let Some(next) = self.forward(&state) {
                state = next;
            } else if properties::reached(self, &state) {
                self.good.lock().expect("no panic while held").extend(passed);
                return Ok(state);
            } else if state.late {
                return Err(self.show(&state, Rule::Reached));
            } else {
                state.late = true;
            }
        }
        Err(Rule::Rest)
    }

    /// Prints a state, to explain a broken rule.
    pub fn show(&self, state: &State, rule: Rule) -> Rule {
        if std::env::var("MODEL_SHOW").is_err() {
            return rule;
        }
        println!("{state:#?}");
        if let Some(object) = &state.object {
            println!("{}", serde_json::to_string_pretty(&object.status.as_ref().map(Shared::get)).expect("JSON"));
        }
        for member in &state.members {
            println!("{}", serde_json::to_string(&member.status.as_ref().map(Shared::get)).expect("JSON"));
            println!("{}", serde_json::to_string(&member.spec.as_ref().map(Shared::get)).expect("JSON"));
        }
        for write in operator::outcome(self, state, state.term).iter().flat_map(|o| &o.get().writes) {
            println!("would write {write:?}");
        }
        rule
    }

    /// The next step of a world without faults.
    fn forward(&self, state: &State) -> Option<State> {
        let mut order = vec![Action::Detect, Action::Schedule];
        order.extend((0..self.setup.clusters).map(Action::Sync));
        order.push(Action::Collect);
        order.extend((0..self.setup.clusters).map(Action::Report));
        order.push(Action::Reconfigure);
        order.extend((0..self.setup.clusters).map(Action::Agent));
        order.insert(if state.asleep { order.len() } else { 0 }, Action::Run);
        order.into_iter().find_map(|action| self.act(state, action).filter(|next| next != state))
    }

    fn act(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let done = match action {
            Action::Run => {
                operator::run(self, &mut state);
                state != *before
            }
            Action::Write(index) => operator::go_on(self, &mut state, index),
            Action::Crash(index) => {
                state.operators.remove(index);
                true
            }
            Action::Change => {
                state.object.as_mut()?.declare(1);
                true
            }
            Action::Say => {
                state.object.as_mut()?.has_said = true;
                true
            }
            Action::Delete => state.delete(),
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
            Action::Reconfigure => member::reconfigure(self, &mut state),
            Action::Return(cluster) => {
                let member = &mut state.members[cluster];
                (member.joined, member.ready, member.alive) = (true, true, true);
                true
            }
            Action::Kinds(cluster) => {
                state.members[cluster].serves = true;
                true
            }
            Action::Secret(cluster) => {
                state.members[cluster].lacks_secret = false;
                true
            }
            Action::Fault(fault) => {
                state.faults -= 1;
                faults::fail(self, &mut state, fault)
            }
        };
        member::report(self, &mut state);
        done.then_some(state)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The operator makes all writes of a plan.
    Run,
    /// A slow operator makes its next write.
    Write(usize),
    /// A slow operator crashes.
    Crash(usize),
    /// The user declares the next spec.
    Change,
    /// The user says what becomes of the servers of the lost control plane.
    Say,
    /// The user deletes the object.
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
            // Another world searches this part. A broken rule takes effect only after it.
            let sound = Self::new(self.setup.clone(), None);
            state = sound.settle(&state).expect("the first spec is rolled out");
        }
        state.faults = self.setup.faults;
        state.to_delete = self.setup.deleted;
        self.copy.get_or_init(|| state.clone());
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for index in 0..state.operators.len() {
            actions.extend([Action::Write(index), Action::Crash(index)]);
        }
        if state.operators.is_empty() || self.setup.kinds.contains(&Fault::Second) {
            actions.push(Action::Run);
        }
        if let Some(object) = state.object.as_ref().filter(|o| !o.deleting) {
            if object.spec + 1 < self.setup.specs.len() {
                actions.push(Action::Change);
            }
            if object.is_second && !object.has_said {
                actions.push(Action::Say);
            }
            // The agent of a cluster that left ends its servers seconds later. Nothing else knows of them: docs/explanation/limits.md.
            let has_ended = |m: &MemberCluster| m.work.is_some() || m.servers.is_empty();
            if state.to_delete && state.members.iter().all(has_ended) {
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
        for (cluster, member) in state.members.iter().enumerate() {
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
            let plans = state.operators.len();
            let possible = |f: &&Fault| match f {
                Fault::Slow => plans == 0,
                Fault::Second | Fault::Deposed => plans < 2,
                _ => true,
            };
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
                moved |= member::read(&mut next, cluster);
            }
            moved |= karmada::collect(&mut next);
            member::report(self, &mut next);
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
                "after the last fault the world becomes as declared, and stays so",
                |world: &World, state: &State| state.broken.is_some() || world.settle(state).is_ok(),
            ),
        ]
    }
}
