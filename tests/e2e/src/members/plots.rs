//! The stories: which steps, in which federation.

use super::{
    TWO_NODES,
    steps::{Step, changes, clients, delay, faults, kills, lives, nodes, policy, secrets, sizes},
};

/// A story.
#[derive(Clone, Copy)]
pub struct Plot {
    /// A word for it, which is also part of the namespace's name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// How many member clusters there are.
    pub members: u8,
    /// The clusters with two nodes.
    pub two_nodes: &'static [&'static str],
    /// Voters at the beginning.
    pub voters: usize,
    /// Its steps: each begins where the one before it ended.
    pub steps: &'static [Step],
}

/// The demonstration.
pub const DEMO: Plot = Plot {
    name: "demo",
    shows: "five voters through changes and faults",
    members: 3,
    two_nodes: &[TWO_NODES],
    voters: 5,
    steps: &[
        changes::FORMS,
        changes::SETTING,
        changes::UPGRADE,
        sizes::GROW,
        sizes::SHRINK,
        faults::LEADER_KILLED,
        nodes::DRAIN,
        faults::CUT,
        sizes::LOGS,
        sizes::END,
    ],
};

/// What a person does, and what they do wrong.
pub const CHANGES: Plot = Plot {
    name: "changes",
    shows: "what people change, and their mistakes",
    members: 3,
    two_nodes: &[],
    voters: 3,
    steps: &[
        changes::FORMS,
        clients::SERVICE,
        clients::JAVA,
        changes::SETTING,
        changes::UPGRADE,
        changes::BAD_IMAGE,
        changes::BAD_SETTING,
        clients::TLS,
        clients::OBSERVERS,
        policy::POLICY,
        secrets::AUTHORITY,
        sizes::GROW,
        sizes::SHRINK,
        sizes::LOGS,
        sizes::END,
    ],
};

/// What nobody wants.
pub const FAULTS: Plot = Plot {
    name: "faults",
    shows: "what breaks, and is broken by hand",
    members: 3,
    two_nodes: &[TWO_NODES, "m2", "m3"],
    voters: 3,
    steps: &[
        changes::FORMS,
        faults::LEADER_KILLED,
        faults::EACH_KILLED,
        delay::STATUS,
        faults::VOLUME_LOST,
        nodes::DRAIN,
        nodes::DRAINS,
        nodes::NODE_STOPPED,
        kills::AGENTS_KILLED,
        kills::OPERATOR_KILLED,
        kills::JOINERS_KILLED,
        sizes::SHRINK,
        secrets::MAJORITY_BROKEN,
        faults::SILENCE,
        faults::CUT,
        faults::CUT_ALL,
        faults::DELAYED,
        sizes::LOGS,
        sizes::END,
    ],
};

/// Beginnings and ends.
pub const LIVES: Plot = Plot {
    name: "lives",
    shows: "beginnings and ends",
    members: 3,
    two_nodes: &[],
    voters: 3,
    steps: &[
        lives::FORMS_LATE,
        lives::NAMESPACE,
        lives::AGAIN,
        lives::AGAIN_AWAY,
        lives::BEGUN_ANEW,
        sizes::LOGS,
        sizes::END,
    ],
};

/// From three clusters to three others.
pub const MOVE: Plot = Plot {
    name: "move",
    shows: "all voters move to other clusters",
    members: 6,
    two_nodes: &[],
    voters: 3,
    steps: &[changes::FORMS, sizes::MOVE, sizes::IMPORT, sizes::LOGS, sizes::END],
};

/// How long writes pause.
pub const PAUSES: Plot = Plot {
    name: "pauses",
    shows: "five times: a setting rolls, and the leader is ended by kill -9, then by kill -TERM",
    members: 3,
    two_nodes: &[],
    voters: 5,
    steps: &[
        changes::FORMS,
        changes::SETTING,
        faults::LEADER_KILLED,
        faults::LEADER_ENDED,
        changes::SETTING,
        faults::LEADER_KILLED,
        faults::LEADER_ENDED,
        changes::SETTING,
        faults::LEADER_KILLED,
        faults::LEADER_ENDED,
        changes::SETTING,
        faults::LEADER_KILLED,
        faults::LEADER_ENDED,
        changes::SETTING,
        faults::LEADER_KILLED,
        faults::LEADER_ENDED,
        sizes::LOGS,
        sizes::END,
    ],
};

/// Agents and operator killed at many moments of every change.
pub const KILLS: Plot = Plot {
    name: "kills",
    shows: "agents and operator are killed at 20 moments of every change",
    members: 3,
    two_nodes: &[],
    voters: 3,
    steps: &kills::MATRIX,
};

/// All but the demonstration.
pub const ALL: &[Plot] = &[CHANGES, FAULTS, LIVES, MOVE, PAUSES, KILLS];
