//! What has changed around one object since the operator last read it.
//!
//! A watch event that the last read already holds causes no reconcile: above all the events of the operator's own writes.
//! Decisions never rest on events. They only say when to read again, and a read is always live.

use std::time::{Duration, Instant};

use mczk_reading::versions::{Id, ObjectVersion, Sighting};

/// What has changed around one object.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The versions that the last read holds.
    held: Vec<(Id, u64)>,
    /// The versions of events that no read holds.
    newer: Vec<(Id, u64)>,
    /// True if everything that is read was read without a failure, and nothing without a version has changed since.
    current: bool,
    /// The term of the last read.
    term: Option<i32>,
    /// When to read again although nothing changes.
    due: Option<Instant>,
}

impl Changes {
    /// Notes an event. True if the operator must read again.
    pub(super) fn saw(&mut self, (id, version): ObjectVersion, sighting: Sighting) -> bool {
        let Some(version) = version else {
            self.current = false;
            return true;
        };
        let held = self.held.iter().find(|(other, _)| *other == id).map(|(_, held)| *held);
        let known = held.is_some_and(|held| match sighting {
            Sighting::Changed => version <= held,
            Sighting::Listed => version == held,
        });
        if known {
            return false;
        }
        put(&mut self.newer, id, version);
        true
    }

    /// Notes a change without a version, or a failure: the operator must read again.
    pub(super) fn invalidate(&mut self) {
        self.current = false;
    }

    /// True if the operator must read again, in this term and at this time. `version` is that of the object itself.
    pub(super) fn requires_read(&mut self, version: ObjectVersion, term: Option<i32>, now: Instant) -> bool {
        self.saw(version, Sighting::Listed);
        !self.current || self.term != term || !self.newer.is_empty() || self.due.is_some_and(|due| due <= now)
    }

    /// True if no event is known that the last read does not hold. `own` is the object itself, whose version the caller
    /// notes before it reads.
    pub(super) fn is_routine(&self, own: Id, term: Option<i32>) -> bool {
        let nothing_held = || self.held.is_empty() && self.newer.iter().all(|(id, _)| *id == own);
        self.term != term || self.newer.is_empty() || nothing_held()
    }

    /// Begins a read in a term. It will hold every event until now.
    pub(super) fn begin_read(&mut self, term: Option<i32>) {
        *self = Self { current: true, term, ..Self::default() };
    }

    /// A read holds these versions, or a write returned them. Their events may have come before.
    pub(super) fn hold(&mut self, versions: impl IntoIterator<Item = ObjectVersion>) {
        for (id, version) in versions {
            let Some(version) = version else { continue };
            put(&mut self.held, id, version);
            self.newer.retain(|(other, newer)| *other != id || *newer > version);
        }
    }

    /// Sets the time of the next read.
    pub(super) fn read_again_in(&mut self, period: Duration, now: Instant) {
        self.due = now.checked_add(period);
    }

    /// Time until the next read.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        Some(self.due?.saturating_duration_since(now))
    }
}

fn put(versions: &mut Vec<(Id, u64)>, id: Id, version: u64) {
    match versions.iter_mut().find(|(other, _)| *other == id) {
        Some((_, known)) => *known = version,
        None => versions.push((id, version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id {
        Id::of("ZooKeeper", "zk")
    }

    /// Everything was read, and the template has version 7.
    fn read() -> Changes {
        let mut changes = Changes::default();
        changes.begin_read(Some(1));
        changes.hold([(id(), Some(7)), (own(), Some(3))]);
        changes
    }

    fn own() -> Id {
        Id::of("MultiClusterZooKeeper", "zk")
    }

    fn requires_read(changes: &mut Changes) -> bool {
        changes.requires_read((own(), Some(3)), Some(1), Instant::now())
    }

    #[test]
    fn an_event_that_the_read_holds_needs_no_read() {
        let mut changes = read();
        assert!(!changes.saw((id(), Some(7)), Sighting::Changed));
        assert!(!changes.saw((id(), Some(6)), Sighting::Changed), "an older event arrives late");
        assert!(!requires_read(&mut changes));
        assert!(changes.saw((id(), Some(8)), Sighting::Changed));
        assert!(requires_read(&mut changes));
        // The operator itself wrote version 8, and its event came before the answer.
        changes.hold([(id(), Some(8))]);
        assert!(!requires_read(&mut changes));
    }

    #[test]
    fn every_other_change_needs_a_read() {
        let now = Instant::now();
        assert!(requires_read(&mut Changes::default()), "nothing was read");
        assert!(read().requires_read((own(), Some(4)), Some(1), now), "the object changed");
        assert!(read().requires_read((own(), Some(3)), Some(2), now), "another term began");
        assert!(read().saw((Id::of("ServiceExport", "zk"), Some(1)), Sighting::Changed), "an unknown object");
        // An API server whose storage was restored counts from an older version.
        assert!(read().saw((id(), Some(5)), Sighting::Listed));
        let mut changes = read();
        changes.invalidate();
        assert!(requires_read(&mut changes));
        let mut changes = read();
        assert!(changes.saw((id(), None), Sighting::Changed), "versions are no numbers");
        assert!(requires_read(&mut changes));
        let mut changes = read();
        changes.read_again_in(Duration::from_secs(5), now);
        assert!(!changes.requires_read((own(), Some(3)), Some(1), now));
        assert_eq!(changes.time_left(now), Some(Duration::from_secs(5)));
        assert!(changes.requires_read((own(), Some(3)), Some(1), now + Duration::from_secs(5)));
    }

    #[test]
    fn a_change_during_a_read_needs_another_one() {
        let mut changes = read();
        changes.begin_read(Some(1));
        changes.saw((id(), Some(9)), Sighting::Changed);
        changes.hold([(id(), Some(8)), (own(), Some(3))]);
        assert!(requires_read(&mut changes));
        changes.begin_read(Some(1));
        changes.hold([(id(), Some(9)), (own(), Some(3))]);
        assert!(!requires_read(&mut changes));
    }

    #[test]
    fn a_read_without_an_event_is_routine() {
        assert!(Changes::default().is_routine(own(), Some(1)), "nothing was read");
        let mut changes = Changes::default();
        changes.begin_read(Some(1));
        assert!(requires_read(&mut changes) && changes.is_routine(own(), Some(1)), "the read was cancelled");
        changes.saw((id(), Some(1)), Sighting::Changed);
        assert!(!changes.is_routine(own(), Some(1)));
        let mut changes = read();
        changes.invalidate();
        assert!(changes.is_routine(own(), Some(1)), "a Cluster changed");
        changes.saw((id(), Some(8)), Sighting::Changed);
        assert!(!changes.is_routine(own(), Some(1)) && changes.is_routine(own(), Some(2)), "another term began");
        assert!(!{
            let mut changes = read();
            changes.requires_read((own(), Some(4)), Some(1), Instant::now());
            changes.is_routine(own(), Some(1))
        });
    }

    #[test]
    fn a_failed_read_is_repeated() {
        let mut changes = read();
        changes.begin_read(Some(1));
        changes.invalidate();
        assert!(requires_read(&mut changes));
    }
}
