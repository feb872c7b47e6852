//! A volume that went back in time does not vote. Pure.
//!
//! A restored snapshot, a deleted log or the volume of another server lacks transactions that the server acknowledged. If
//! such servers elect a leader with others that lag, acknowledged writes are gone.
//!
//! Two numbers show it. A server that serves raises the *generation* of its volume: first on the volume, then in the
//! ensemble, from where the others copy it to their volumes. So an intact volume is never older than what the others know.
//! The server also stores the newest transaction that its files certainly hold.
//!
//! Before a server votes, a majority of the voters must have reported what they know. That costs no availability, since no
//! quorum exists without a majority.

use std::collections::BTreeSet;

use crate::{
    contract::{control_api::Configuration, server_list::majority},
    mutation::broken,
    server::start::{Peers, StoredServer},
};

/// What a volume tells about its own age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeAge {
    /// Generation on the volume: 0 if no server raised it yet. Absent on a volume without a vote, which was seeded a moment
    /// ago and takes over the generation that others know.
    pub generation: Option<i64>,
    /// Newest transaction that the files certainly held: a zxid. 0 if unknown.
    pub held: i64,
    /// Last transaction in the files. Absent if they cannot be read: `ZooKeeper` then refuses to start.
    pub end: Option<i64>,
    /// True if this process has run `ZooKeeper` on the volume. A volume does not change under a process.
    pub confirmed: bool,
}

impl VolumeAge {
    /// Why the volume lacks transactions that its server acknowledged, if it does.
    pub(super) fn lacks(&self, stored: &StoredServer, peers: &Peers) -> Option<String> {
        let id = stored.id;
        let known = peers.generations.get(&id).copied().unwrap_or_default();
        if let Some(own) = self.generation.filter(|own| known > *own && !broken!(BelieveOldVolume)) {
            return Some(format!(
                "the volume went back in time: it has generation {own} of server {id}, but other servers know generation \
                 {known}. It may lack acknowledged writes, so server {id} must be removed and returns under a new id"
            ));
        }
        let end = self.end.filter(|end| stored.data && *end < self.held && !broken!(BelieveShortLog))?;
        Some(format!(
            "transactions are missing on the volume: its files end at 0x{end:x}, but server {id} acknowledged 0x{:x}. \
             Server {id} must be removed and returns under a new id",
            self.held
        ))
    }

    /// Why the server may not vote yet, if it may not.
    pub(super) fn unconfirmed(&self, stored: &StoredServer, peers: &Peers) -> Option<String> {
        if self.confirmed || peers.configuration.is_some() || broken!(VoteUnconfirmed) {
            return None;
        }
        let voters: BTreeSet<i32> = stored.dynamic.iter().flat_map(Configuration::voters).collect();
        let answered = voters.iter().filter(|id| **id == stored.id || peers.answered.contains(id)).count();
        (answered < majority(voters.len())).then(|| {
            format!(
                "the server asks the others if its volume is an old copy: {answered} of {} voters have answered, itself \
                 included, and a majority must",
                voters.len()
            )
        })
    }
}
