//! The bodies that the webhook reads and holds, and which of them ends when a limit is reached.
//!
//! A new body never waits. At a limit, the body ends that is read for the longest time: Karmada sends one within
//! milliseconds, so a slow client loses its place, and not Karmada.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The bodies of all requests.
#[derive(Debug)]
pub(super) struct Bodies {
    max_number: usize,
    max_bytes: usize,
    table: Mutex<BodyTable>,
}

#[derive(Debug, Default)]
struct BodyTable {
    next: u64,
    /// The bodies that are read, from the oldest.
    read: BTreeMap<u64, BodyEntry>,
    /// Bytes of all bodies, also of those that are complete.
    bytes: usize,
}

#[derive(Debug)]
struct BodyEntry {
    bytes: usize,
    evicted: Arc<Notify>,
}

/// The bodies that are answered take all the memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Bodies {
    /// No bodies yet. At the same time the webhook reads at most `max_number` of them, and holds at most `max_bytes`.
    pub(super) fn new(max_number: usize, max_bytes: usize) -> Self {
        Self { max_number, max_bytes, table: Mutex::default() }
    }

    /// Begins to read a body. One too many ends another one.
    pub(super) fn begin(&self) -> BodyReading<'_> {
        let mut table = self.table.lock();
        if table.read.len() >= self.max_number {
            table.evict_oldest(u64::MAX);
        }
        table.next += 1;
        let (id, evicted) = (table.next, Arc::<Notify>::default());
        table.read.insert(id, BodyEntry { bytes: 0, evicted: evicted.clone() });
        BodyReading { id, bodies: self, evicted }
    }

    /// Holds a body that has arrived completely.
    ///
    /// # Errors
    /// If the bodies that are answered take the memory.
    pub(super) fn hold(&self, bytes: usize) -> Result<Complete<'_>, Full> {
        let mut table = self.table.lock();
        table.bytes += bytes;
        let complete = Complete { bodies: self, bytes };
        let fits = table.make_room(self.max_bytes, u64::MAX);
        // Without the lock: a body that is refused returns its bytes.
        drop(table);
        fits.map(|()| complete)
    }
}

impl BodyTable {
    fn remove(&mut self, id: u64) -> Option<BodyEntry> {
        let entry = self.read.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Ends the body that is read for the longest time, except this one. False if there is no other.
    fn evict_oldest(&mut self, except: u64) -> bool {
        let oldest = self.read.keys().copied().find(|id| *id != except);
        let Some(entry) = oldest.and_then(|id| self.remove(id)) else { return false };
        entry.evicted.notify_one();
        true
    }

    /// Ends bodies, except this one, until all fit into this memory.
    fn make_room(&mut self, max_bytes: usize, except: u64) -> Result<(), Full> {
        while self.bytes > max_bytes {
            if !self.evict_oldest(except) {
                return Err(Full);
            }
        }
        Ok(())
    }
}

/// A body that is read.
#[derive(Debug)]
pub(super) struct BodyReading<'a> {
    id: u64,
    bodies: &'a Bodies,
    evicted: Arc<Notify>,
}

impl<'a> BodyReading<'a> {
    /// The body now takes this much memory. It takes that of slower bodies if too little is left.
    ///
    /// # Errors
    /// If the bodies that are answered take the memory.
    pub(super) fn holds(&self, bytes: usize) -> Result<(), Full> {
        let mut table = self.bodies.table.lock();
        // Another body may have ended this one, which then learns it by [`Self::evicted`].
        let Some(entry) = table.read.get_mut(&self.id) else { return Ok(()) };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        table.bytes = table.bytes - before + bytes;
        table.make_room(self.bodies.max_bytes, self.id)
    }

    /// Returns when another body has taken the place of this one.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// All bytes are there. From now on no other body can end this one.
    pub(super) fn complete(self) -> Complete<'a> {
        let mut table = self.bodies.table.lock();
        let bytes = table.remove(self.id).map_or(0, |entry| entry.bytes);
        table.bytes += bytes;
        Complete { bodies: self.bodies, bytes }
    }
}

impl Drop for BodyReading<'_> {
    fn drop(&mut self) {
        self.bodies.table.lock().remove(self.id);
    }
}

/// A complete body, until its request is answered.
#[derive(Debug)]
pub(super) struct Complete<'a> {
    bodies: &'a Bodies,
    bytes: usize,
}

impl Drop for Complete<'_> {
    fn drop(&mut self) {
        self.bodies.table.lock().bytes -= self.bytes;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn ended(body: &BodyReading<'_>) -> bool {
        body.evicted().now_or_never().is_some()
    }

    #[test]
    fn the_slowest_body_ends_for_one_too_many() {
        let bodies = Bodies::new(2, 100);
        let [first, second] = [bodies.begin(), bodies.begin()];
        let third = bodies.begin();
        assert_eq!([&first, &second, &third].map(ended), [true, false, false]);
        drop((first, second, third));
        assert!(bodies.table.lock().read.is_empty());
    }

    #[test]
    fn the_slowest_bodies_end_for_their_memory() {
        let bodies = Bodies::new(9, 100);
        let open = [40, 40, 20].map(|bytes| {
            let body = bodies.begin();
            assert_eq!(body.holds(bytes), Ok(()));
            body
        });
        let last = bodies.begin();
        assert_eq!(last.holds(50), Ok(()));
        assert_eq!(open.each_ref().map(ended), [true, true, false]);
        // An ended body counts no more.
        assert_eq!(open[0].holds(90), Ok(()));
        assert_eq!(bodies.table.lock().bytes, 70);
        drop((open, last));
        assert_eq!(bodies.table.lock().bytes, 0);
    }

    #[test]
    fn a_complete_body_stays() {
        let bodies = Bodies::new(9, 100);
        let first = bodies.begin();
        assert_eq!(first.holds(40), Ok(()));
        let (first, second) = (first.complete(), bodies.hold(40).unwrap());
        let third = bodies.begin();
        assert_eq!(third.holds(30), Err(Full));
        assert_eq!(third.holds(20), Ok(()));
        assert_eq!(bodies.hold(20).err(), None, "it takes the memory of a body that is read");
        assert!(ended(&third));
        assert_eq!(bodies.hold(30).err(), Some(Full));
        drop((first, second, third));
        assert_eq!(bodies.table.lock().bytes, 0);
    }
}
