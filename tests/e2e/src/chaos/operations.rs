//! The operations of a chaos run, and the file that holds them.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

/// The fields of a line, for people that read the file.
pub const HEAD: &str = "# ROUND AT LASTS OPERATION PICK";

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// The ZooKeeper process of a server ends by kill -9.
    KillServer,
    /// The process of the leader ends by kill -9.
    KillLeader,
    /// The agents of a cluster end without a grace period.
    KillAgent,
    /// The operator ends by kill -9, and starts again.
    KillOperator,
    /// A component of Karmada ends by kill -9, and starts again.
    KillKarmada,
    /// A server's pod is deleted.
    DeletePod,
    /// A server's pod is deleted without a grace period, and the API server forgets it at once.
    ForceDeletePod,
    /// The StatefulSets of a cluster are deleted, with their pods.
    DeleteStatefulSet,
    /// A server's volume and its pod are deleted.
    LoseVolume,
    /// A server's volume is replaced by an older copy of it, as by a snapshot.
    OldVolume,
    /// A server's transaction logs are deleted.
    DeleteLogs,
    /// The user asks for an empty volume of a server, with `mczk replace`.
    ReplaceVolume,
    /// Two of five voters get each other's volume.
    SwapVolumes,
    /// A whole cluster loses power.
    PowerOff,
    /// A whole cluster loses power for longer than its voters keep their votes, and for long enough that they move to a spare.
    LongPowerOff,
    /// A node loses power.
    PowerOffNode,
    /// The servers of a cluster do not reach those of other clusters.
    CutServers,
    /// Karmada and a cluster do not reach each other.
    CutKarmada,
    /// A cluster leaves Karmada (`karmadactl unjoin`) and joins again.
    Unjoin,
    /// Packets between all clusters are late.
    Delay,
    /// A firewall forgets all connections of the servers of a cluster, and drops their packets.
    ForgetConnections,
    /// The path to and from the servers of a cluster drops large packets, as with a wrong MTU.
    DropLargePackets,
    /// A quota refuses everything that is created for the ensemble in a cluster.
    Refuse,
    /// An admission policy of the control plane refuses everything that is written for the ensemble.
    RefuseAll,
    /// Karmada's data are lost. The user builds the control plane again, and adopts the ensemble.
    LoseControlPlane,
    /// The control plane returns to an older copy of its data. The user declares again what the copy lacks.
    RestoreControlPlane,
    /// The process of a server stops for a while (SIGSTOP).
    PauseServer,
    /// The processes of all servers stop for a while, as in long pauses of their JVMs.
    PauseAll,
    /// The disk of a server stalls: no write of its process ends.
    StallDisk,
    /// A client holds all connections that a server accepts.
    UseUpConnections,
    /// No file of a server's process may grow, as on a full disk.
    FillDisk,
    /// A node takes no more pods.
    Cordon,
    /// A node is drained by kubectl, at once.
    Drain,
    /// A node gets a taint that evicts pods.
    Taint,
    /// Another operator runs beside the first one.
    SecondOperator,
    /// The operator starts again with a wrong clock: minutes or days behind or ahead.
    WrongClock,
    /// The operator, the agents, or the parents of the servers change to the other version of mczk.
    ChangeVersion,
    /// The user changes a setting of ZooKeeper.
    ChangeSetting,
    /// The user changes the version of ZooKeeper.
    ChangeImage,
    /// The user changes an annotation of the pods.
    ChangeAnnotation,
    /// The user changes the number of voters, from 3 to 5 or back.
    ChangeReplicas,
    /// The user adds a cluster to the placement, or removes one.
    ChangePlacement,
    /// The user asks for a move of voters to a spare, then for the way home, and removes the request at last.
    RequestMove,
    /// The user asks for a move of voters to a spare, and soon for the way home.
    RehearseMove,
    /// The user pauses the rollout.
    PauseRollout,
    /// The user asks for another authority of the quorum.
    ReplaceAuthority,
    /// A hand adds fields to the PropagationPolicy.
    EditPropagation,
    /// A hand adds fields to the OverridePolicy.
    EditOverride,
    /// A hand adds fields to the template.
    EditTemplate,
    /// A hand deletes the PropagationPolicy.
    DeletePropagation,
    /// A hand deletes the OverridePolicy.
    DeleteOverride,
    /// A hand deletes the template.
    DeleteTemplate,
    /// A hand deletes a Work of the template.
    DeleteWork,
    /// A hand removes the status.
    WipeStatus,
}

/// What an operation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A cluster, by its place in the list of all clusters.
    Cluster,
    /// A server, by its place in the list of those that run then.
    Server,
    /// The ensemble, or an object in the control plane.
    Whole,
}

/// How an operation is chosen, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub struct Nature {
    /// What it changes.
    pub scope: Scope,
    /// How often it is chosen, compared with others.
    pub weight: u32,
    /// Seconds until it is undone; none if it has no undo.
    pub lasts: Option<(u64, u64)>,
}

impl Kind {
    /// Its name in files and reports.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// True if the data of a server, or of a cluster's servers, is gone afterwards. `karmadactl unjoin` deletes the namespaces
    /// of a cluster that answers.
    #[must_use]
    pub fn loses_volumes(self) -> bool {
        matches!(
            self,
            Self::LoseVolume
                | Self::OldVolume
                | Self::DeleteLogs
                | Self::SwapVolumes
                | Self::ReplaceVolume
                | Self::Unjoin
        )
    }

    /// True if the control plane is built again afterwards, from nothing or from a copy.
    #[must_use]
    pub fn loses_control_plane(self) -> bool {
        matches!(self, Self::LoseControlPlane | Self::RestoreControlPlane)
    }

    /// True if a whole cluster has no power meanwhile.
    #[must_use]
    pub fn stops_cluster(self) -> bool {
        matches!(self, Self::PowerOff | Self::LongPowerOff)
    }

    /// How it is chosen.
    #[must_use]
    pub fn nature(self) -> Nature {
        use Scope::{Cluster, Server, Whole};
        let (scope, weight, lasts) = match self {
            Self::KillServer => (Server, 6, None),
            Self::DeletePod => (Server, 5, None),
            Self::LoseVolume => (Server, 4, None),
            Self::ForceDeletePod | Self::DeleteLogs | Self::SwapVolumes | Self::ReplaceVolume => (Server, 2, None),
            Self::KillAgent | Self::ChangePlacement => (Cluster, 4, None),
            Self::DeleteStatefulSet => (Cluster, 2, None),
            Self::KillLeader | Self::KillOperator | Self::RequestMove | Self::ChangeSetting | Self::ChangeReplicas => {
                (Whole, 4, None)
            }
            Self::KillKarmada
            | Self::ChangeAnnotation
            | Self::ChangeImage
            | Self::ChangeVersion
            | Self::EditPropagation
            | Self::EditOverride
            | Self::EditTemplate => (Whole, 2, None),
            Self::ReplaceAuthority
            | Self::DeletePropagation
            | Self::DeleteOverride
            | Self::DeleteTemplate
            | Self::DeleteWork
            | Self::WipeStatus => (Whole, 1, None),
            Self::PowerOff | Self::PowerOffNode | Self::DropLargePackets => (Cluster, 2, Some((10, 45))),
            Self::LongPowerOff => (Cluster, 2, Some((80, 240))),
            Self::RehearseMove => (Whole, 2, Some((5, 50))),
            Self::CutServers | Self::CutKarmada | Self::ForgetConnections | Self::Refuse => {
                (Cluster, 3, Some((10, 45)))
            }
            Self::Delay | Self::WrongClock | Self::RefuseAll => (Whole, 2, Some((10, 40))),
            Self::Unjoin => (Cluster, 1, Some((10, 40))),
            Self::LoseControlPlane | Self::RestoreControlPlane => (Whole, 1, Some((10, 40))),
            // The ensemble knows a newer generation after 15 s.
            Self::OldVolume => (Server, 4, Some((18, 40))),
            Self::PauseServer => (Server, 4, Some((3, 40))),
            Self::StallDisk => (Server, 3, Some((5, 40))),
            Self::UseUpConnections => (Server, 3, Some((10, 40))),
            Self::FillDisk => (Server, 2, Some((5, 25))),
            Self::Cordon | Self::Drain => (Cluster, 2, Some((15, 50))),
            Self::Taint => (Cluster, 1, Some((15, 50))),
            Self::SecondOperator | Self::PauseAll => (Whole, 1, Some((5, 40))),
            Self::PauseRollout => (Whole, 2, Some((5, 30))),
        };
        Nature { scope, weight, lasts }
    }
}

/// An operation of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it begins, from the start of the round.
    pub at: Duration,
    /// When it is undone, from its own beginning; zero if it has no undo.
    pub lasts: Duration,
    /// What it does.
    pub kind: Kind,
    /// Which cluster, server, or variant: the place in a list, modulo its length.
    pub pick: u8,
}

impl Operation {
    /// When it is undone, from the start of the round.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }

    /// The picked element of a list.
    #[must_use]
    pub fn of<'t, T>(&self, list: &'t [T]) -> Option<&'t T> {
        list.get(usize::from(self.pick).checked_rem(list.len())?)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{at:5.1} {lasts:5.1} {:20} {:3}", self.kind.name(), self.pick)
    }
}

impl FromStr for Operation {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [at, lasts, kind, pick] = *fields.as_slice() else {
            anyhow::bail!("{line:?} must have the fields AT LASTS OPERATION PICK");
        };
        let seconds = |text: &str, field: &str| -> Result<Duration> {
            let seconds: f64 = text.parse().with_context(|| format!("{field} {text:?} is no number of seconds"))?;
            ensure!((0.0..=3600.0).contains(&seconds), "{field} {text} must be 0 to 3600");
            Ok(Duration::from_secs_f64(seconds))
        };
        Ok(Self {
            at: seconds(at, "AT")?,
            lasts: seconds(lasts, "LASTS")?,
            kind: Kind::from_str(kind, false).map_err(|_| anyhow::anyhow!("there is no operation {kind:?}"))?,
            pick: pick.parse().with_context(|| format!("PICK {pick:?} must be 0 to 255"))?,
        })
    }
}

/// The line of an operation in a file.
#[must_use]
pub fn line(round: usize, operation: &Operation) -> String {
    format!("{round:5} {operation}")
}

/// The operations of a file, by round. Lines that begin with `#` are comments.
///
/// # Errors
/// The first line that is wrong.
pub fn read(text: &str) -> Result<Vec<Vec<Operation>>> {
    let mut rounds: Vec<Vec<Operation>> = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let of_line = || format!("line {}", nth + 1);
        let (round, rest) = line.split_once(char::is_whitespace).with_context(of_line)?;
        let round: usize = round.parse().with_context(of_line)?;
        ensure!((1..=rounds.len() + 1).contains(&round), "{}: round {round} does not follow", of_line());
        if round > rounds.len() {
            rounds.push(Vec::new());
        }
        if let Some(last) = rounds.get_mut(round - 1) {
            last.push(rest.parse().with_context(of_line)?);
        }
    }
    ensure!(!rounds.is_empty(), "the file has no operation");
    Ok(rounds)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let operation = |at: u64, kind| Operation {
            at: Duration::from_millis(at),
            lasts: Duration::from_millis(if kind == Kind::PowerOff { 12_500 } else { 0 }),
            kind,
            pick: 7,
        };
        let rounds = vec![
            vec![operation(1_500, Kind::PowerOff), operation(2_000, Kind::KillLeader)],
            vec![operation(0, Kind::Cordon)],
        ];
        let lines = rounds
            .iter()
            .enumerate()
            .flat_map(|(nth, round)| round.iter().map(move |o| line(nth + 1, o) + " # done\n"));
        let text = format!("{HEAD}\n{}", lines.collect::<String>());
        assert_eq!(read(&text).unwrap(), rounds, "{text}");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, named) in [
            ("1 0 0 power-off 1\n1 0 0 power-of 1", "line 2: there is no operation \"power-of\""),
            ("1 x 0 power-off 1", "line 1: AT \"x\" is no number of seconds"),
            ("1 0 0 power-off 300", "line 1: PICK \"300\" must be 0 to 255"),
            ("2 0 0 power-off 1", "line 1: round 2 does not follow"),
            ("1 0 power-off 1", "line 1: \"0 power-off 1\" must have the fields"),
            ("# nothing", "the file has no operation"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.starts_with(named), "{error}");
        }
    }

    #[test]
    fn a_pick_is_the_place_in_a_list() {
        let operation = Operation { at: Duration::ZERO, lasts: Duration::ZERO, kind: Kind::KillServer, pick: 7 };
        assert_eq!(operation.of(&["a", "b", "c"]), Some(&"b"));
        assert_eq!(operation.of::<u8>(&[]), None);
    }
}
