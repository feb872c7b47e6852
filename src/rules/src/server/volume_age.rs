//! A volume that went back in time does not vote. Pure.
//!
//! A restored snapshot, a deleted log or the volume of another server lacks transactions that the server acknowledged. If
//! such servers elect a leader with others that lag, acknowledged writes are gone.
//!
//! Two numbers show it. A server that serves raises the *generation* of its volume: first on the volume, then in the
//! ensemble, from where the others copy it to their volumes. So an intact volume is never older than what the others know.
//! With the generation the server stores what its files hold ([`Held`]), and compares at its start. `ZooKeeper` numbers
//! transactions without gaps, so a gap in the logs shows that they lack some (ZOOKEEPER-4882).
//!
//! Before a server votes, a majority of the voters must have reported what they know. That costs no availability, since no
//! quorum exists without a majority.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::server::files::{Files, Held};
use mczk_api::{contract::server_list::majority, mutation::broken};

/// Generations on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Generations {
    /// Generation of this volume.
    pub own: i64,
    /// True until a seeded server has taken over the generation that the ensemble knows of its id.
    pub seeded: bool,
    /// What the files held when the generation was raised.
    #[serde(rename = "files")]
    pub held: Held,
    /// Generations of the other servers' volumes, by the servers' ids.
    pub known: BTreeMap<i32, i64>,
}

/// What a process has last written to a volume. An emptied volume, another one and an older copy differ from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeMark {
    /// Identity of the volume.
    pub identity: String,
    /// Generation of the volume.
    pub generation: i64,
    /// True if a quorum ever formed with the server.
    pub formed: bool,
}

/// True if the mark that a process finds on a volume is the one that it has `written` there. A folder may be emptied or mounted
/// again under a process. `None` before the process has run `ZooKeeper`, and on a volume without a server.
#[must_use]
pub fn is_confirmed(written: Option<&VolumeMark>, found: Option<&VolumeMark>) -> bool {
    written.is_some() && (written == found || broken!(BelieveProcess))
}

/// What a volume tells about its own age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeAge {
    /// Generation on the volume: 0 if no server raised it yet. Absent on a volume without a vote, which was seeded a moment
    /// ago and takes over the generation that others know.
    pub generation: Option<i64>,
    /// The first transaction that the files held and that they hold no longer: a zxid.
    pub lost: Option<i64>,
    /// Transactions that the logs skip: the last one before, and the first one after.
    pub gap: Option<(i64, i64)>,
    /// Why the files cannot be read, if they cannot. What they hold is then unknown.
    pub unreadable: Option<String>,
    /// True if this process has run `ZooKeeper` on the volume: [`is_confirmed`].
    pub confirmed: bool,
}

impl VolumeAge {
    /// The age of a volume with these generations, and these files or the reason why they cannot be read. `confirmed` is a
    /// field.
    #[must_use]
    pub fn of(generations: &Generations, files: Result<&Files, String>, confirmed: bool) -> Self {
        let read = files.as_ref().ok();
        Self {
            generation: (!generations.seeded).then_some(generations.own),
            lost: read.and_then(|files| files.lost(&generations.held)),
            gap: read.and_then(|files| files.gap()),
            unreadable: files.err(),
            confirmed,
        }
    }

    /// True if this process has run `ZooKeeper` on the volume with a vote, and not to copy the data first.
    #[must_use]
    pub fn has_vote(&self) -> bool {
        self.confirmed && (self.generation.is_some() || broken!(VoteAgain))
    }

    /// Why the server does not start although its volume may hold everything.
    pub(super) fn unreadable(&self) -> Option<String> {
        let error = self.unreadable.as_ref().filter(|_| !broken!(BelieveUnreadable))?;
        Some(format!(
            "the files on the volume cannot be read: {error}. Repair the disk. If it is broken and the other voters \
             serve, replace the volume with mczk replace"
        ))
    }

    /// The transactions between which the logs skip some.
    fn gap(&self) -> Option<(i64, i64)> {
        self.gap.filter(|_| !broken!(BelieveGap))
    }

    /// The transaction that the files held, and no longer do.
    fn lost(&self) -> Option<i64> {
        self.lost.filter(|_| !broken!(BelieveShortLog))
    }

    /// Why the volume of server `id` lacks transactions that the server acknowledged, if it does. `generations` are those that
    /// other servers know, by the servers' ids.
    pub(super) fn lacks(&self, id: i32, has_data: bool, generations: &BTreeMap<i32, i64>) -> Option<String> {
        let known = generations.get(&id).copied().unwrap_or_default();
        if let Some(own) = self.generation.filter(|own| known > *own && !broken!(BelieveOldVolume)) {
            return Some(format!(
                "the volume went back in time: it has generation {own} of server {id}, but other servers know generation \
                 {known}. It may lack acknowledged writes. {}",
                returns(id)
            ));
        }
        if let Some((before, after)) = self.gap().filter(|_| has_data) {
            return Some(format!(
                "transactions are missing on the volume: its logs skip those between 0x{before:x} and 0x{after:x}, as after a \
                 failed write. {}",
                returns(id)
            ));
        }
        let lost = self.lost().filter(|_| has_data)?;
        Some(format!(
            "transactions are missing on the volume: its files held 0x{lost:x}, and no longer do. {}",
            returns(id)
        ))
    }

    /// Why server `id` may not vote yet with its volume, if it may not: of the voters, too few have answered that remember. Or
    /// the server copied its data and has voted since, as the `generations` say that others know, but its volume does not know
    /// that: it may be a copy.
    pub(super) fn unproven(
        &self,
        (id, has_data): (i32, bool),
        voters: &BTreeSet<i32>,
        remembering: &BTreeSet<i32>,
        generations: &BTreeMap<i32, i64>,
    ) -> Option<String> {
        if self.confirmed || broken!(VoteUnconfirmed) {
            return None;
        }
        if self.generation.is_none() && has_data && generations.get(&id).is_some_and(|known| *known > 0) {
            return Some(format!(
                "the volume may be a copy from the time when server {id} joined. The server starts while a quorum serves. \
                 If none serves, bring the other voters back, or the newest volume of this server. Delete nothing"
            ));
        }
        let answered = voters.iter().filter(|voter| **voter == id || remembering.contains(voter)).count();
        (answered < majority(voters.len())).then(|| {
            format!(
                "the server asks the others if its volume is an old copy: {answered} of {} voters have answered, itself \
                 included, and a majority must",
                voters.len()
            )
        })
    }
}

/// What becomes of a server whose volume lacks what it acknowledged. A user has nothing to do. The volume may still hold what
/// no other one does.
pub(super) fn returns(id: i32) -> String {
    format!(
        "While a majority serves, the ensemble removes server {id}, which returns under a new id if it is still declared. \
         Delete nothing"
    )
}
