//! The stories: lists of steps, each with its federation.

use super::{
    TWO_NODES, spec,
    steps::{
        Step, changes, clients, commands, control_plane, curator, delay, failover, faults, incarnations, kills,
        network, nodes, policy, secrets, sizes, two_clusters, upgrades, versions, volumes,
    },
};
use crate::scene::IMAGE;

/// A story.
#[derive(Clone, Copy)]
pub struct Story {
    /// Its name, which is also part of the name of the namespace.
    pub name: &'static str,
    /// What it tests, as --list prints it.
    pub shows: &'static str,
    /// Number of member clusters.
    pub members: u8,
    /// Clusters with two nodes.
    pub two_nodes: &'static [&'static str],
    /// Voters at the beginning.
    pub voters: usize,
    /// Storage class and first size of its volumes.
    pub storage: (&'static str, &'static str),
    /// Its steps. Each begins with the state that the one before it leaves.
    pub steps: &'static [Step],
}

impl Story {
    /// The image at the beginning: the former version, if the story upgrades it.
    ///
    /// A server of the former version may fail when it loses the leader (ZOOKEEPER-4409).
    #[must_use]
    pub fn image(&self) -> &'static str {
        let upgrades = self.steps.iter().any(|step| step.name.ends_with(changes::UPGRADE.name));
        if upgrades { spec::FORMER } else { IMAGE }
    }
}

/// The demonstration.
pub const DEMO: Story = Story {
    name: "demo",
    shows: "five voters under changes and faults",
    members: 3,
    two_nodes: &[TWO_NODES],
    voters: 5,
    storage: spec::FOLDERS,
    steps: &[
        changes::FORMS,
        changes::SETTING,
        changes::UPGRADE,
        sizes::GROW,
        sizes::SHRINK,
        faults::LEADER_KILLED,
        nodes::DRAIN,
        faults::CUT_OFF,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// What CI plays.
pub const SHORT: Story = Story {
    name: "short",
    shows: "an ensemble forms, changes, loses a cluster that returns, and ends",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[changes::FORMS, changes::SETTING, faults::POWER_LOST, sizes::LOGS, sizes::DELETION],
};

/// Changes that users make, and their mistakes.
pub const CHANGES: Story = Story {
    name: "changes",
    shows: "changes that users make, and their mistakes",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[
        changes::FORMS,
        clients::SERVICE,
        clients::JAVA_CLIENT,
        changes::SETTING,
        commands::READ,
        commands::RESTART,
        commands::REPLACE,
        changes::UPGRADE,
        changes::BAD_IMAGE,
        changes::BAD_SETTING,
        clients::CLIENT_TLS,
        curator::CURATOR,
        clients::OBSERVERS,
        policy::NETWORK_POLICY,
        secrets::AUTHORITY,
        sizes::GROW,
        sizes::SHRINK,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// Faults.
pub const FAULTS: Story = Story {
    name: "faults",
    shows: "failures of processes, nodes, volumes and networks, and damage by hand",
    members: 3,
    two_nodes: &[TWO_NODES, "m2", "m3"],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[
        changes::FORMS,
        faults::LEADER_KILLED,
        faults::EACH_KILLED,
        delay::STATUS_DELAY,
        faults::VOLUME_LOST,
        nodes::DRAIN,
        nodes::THREE_DRAINS,
        nodes::NODE_STOPPED,
        kills::AGENTS_KILLED,
        kills::OPERATOR_KILLED,
        kills::JOINERS_KILLED,
        sizes::SHRINK,
        secrets::BROKEN_CERTIFICATES,
        faults::POWER_LOST,
        faults::CUT_OFF,
        faults::ALL_CUT_OFF,
        faults::LATENCY,
        control_plane::LOST,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// Bootstraps and deletions.
pub const INCARNATIONS: Story = Story {
    name: "incarnations",
    shows: "bootstraps under failure, and deletions after which the name is used again",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[
        network::BROKEN_NETWORK,
        incarnations::LATE_CLUSTER,
        incarnations::NAMESPACE,
        incarnations::RECREATED,
        incarnations::RECREATED_OFFLINE,
        incarnations::REBOOTSTRAP,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// A move to other clusters.
pub const MOVE: Story = Story {
    name: "move",
    shows: "all voters move to three other clusters",
    members: 6,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[changes::FORMS, sizes::MOVE, network::NARROW_PATH, sizes::IMPORT, sizes::LOGS, sizes::DELETION],
};

/// Pauses of writes.
pub const PAUSES: Story = Story {
    name: "pauses",
    shows: "ten times: a setting changes, and the leader ends by kill -9, then by kill -TERM",
    members: 3,
    two_nodes: &[],
    voters: 5,
    storage: spec::FOLDERS,
    steps: &ten_rounds([changes::SETTING, faults::LEADER_KILLED, faults::LEADER_TERMINATED]),
};

/// Forms an ensemble, repeats a round ten times, and ends.
#[allow(clippy::indexing_slicing)] // A constant: the compiler checks the index.
const fn ten_rounds(round: [Step; 3]) -> [Step; 33] {
    let mut steps = [changes::FORMS; 33];
    let mut step = 0;
    while step < 30 {
        steps[1 + step] = round[step % 3];
        step += 1;
    }
    steps[31] = sizes::LOGS;
    steps[32] = sizes::DELETION;
    steps
}

/// Agents and operator, killed at many moments of every change.
pub const KILLS: Story = Story {
    name: "kills",
    shows: "agents and operator are killed at 20 moments of every change",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &kills::MATRIX,
};

/// Two versions of mczk.
pub const VERSIONS: Story = Story {
    name: "versions",
    shows: "operator, agents and servers of two versions; needs --other-mczk",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[
        versions::NEWER_OPERATOR,
        changes::FORMS,
        versions::COMBINATIONS,
        sizes::GROW,
        sizes::SHRINK,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// Other versions of Karmada and Kubernetes.
pub const UPGRADES: Story = Story {
    name: "upgrades",
    shows: "Karmada, and Kubernetes in each member cluster, become newer; see make test-upgrades",
    members: 3,
    two_nodes: &[],
    voters: 3,
    storage: spec::FOLDERS,
    steps: &[
        changes::FORMS,
        upgrades::KARMADA,
        changes::SETTING,
        upgrades::KUBERNETES,
        changes::SETTING,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// Disks that grow.
pub const GROWTH: Story = Story {
    name: "growth",
    shows: "file systems of servers grow in use, and at a mount; storage refuses a size",
    members: 3,
    two_nodes: &[],
    voters: 5,
    storage: (volumes::CLASS, volumes::FIRST_SIZE),
    steps: &[
        changes::FORMS,
        volumes::GROW_IN_USE,
        sizes::SHRINK,
        volumes::GROW_BY_MOUNT,
        volumes::SIZE_REFUSED,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// Voters at spares.
pub const FAILOVER: Story = Story {
    name: "failover",
    shows: "votes are taken and given back, and the voters of a cluster move to a spare and home again",
    // Three have voters at the beginning, and the fourth one is the spare.
    members: 4,
    two_nodes: &[TWO_NODES, "m2"],
    voters: 5,
    storage: spec::FOLDERS,
    steps: &[
        changes::FORMS,
        failover::DEMOTED,
        failover::TWO_NODES_DEMOTED,
        failover::DEMOTED_WITHOUT_KARMADA,
        failover::EVACUATED,
        failover::MOVED_WHEN_LOST,
        failover::MOVED_BACK,
        failover::CALLED_OFF,
        sizes::LOGS,
        failover::RELEASED,
        sizes::DELETION,
    ],
};

/// Two clusters, and a small third one.
pub const TWO_CLUSTERS: Story = Story {
    name: "two-clusters",
    shows: "two clusters with a witness, 3/2 and 2/2: each loses power, and the majority goes to the other one",
    members: 3,
    two_nodes: &[],
    voters: 5,
    storage: spec::FOLDERS,
    steps: &[
        two_clusters::FORMS,
        two_clusters::WITNESS,
        two_clusters::SWITCHED,
        two_clusters::SMALLER_LOST,
        two_clusters::EITHER_HALF,
        sizes::LOGS,
        sizes::DELETION,
    ],
};

/// All but the demonstration.
pub const ALL: &[Story] =
    &[SHORT, CHANGES, FAULTS, INCARNATIONS, MOVE, PAUSES, KILLS, VERSIONS, UPGRADES, GROWTH, FAILOVER, TWO_CLUSTERS];
