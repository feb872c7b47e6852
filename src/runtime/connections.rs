//! The open connections of a server, and which of them ends for a new client at a limit.
//!
//! A new client never waits for a place, so slow clients cannot keep the others waiting. At a limit, the connection ends
//! whose client owes the rest of a handshake or request for the longest time. Clients of addresses that read their answers
//! come later, as do handshakes that wait for the server. If no other is left, it is the connection that was idle for the
//! longest time.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::runtime::{
    permits::Address,
    slow_clients::{Activity, Phase},
    telemetry::register_family,
};

/// Time between two warnings about connections that end at a limit.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Counters of connections that end at a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evictions(Family<EvictionLabels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    limit: &'static str,
}

impl Evictions {
    /// Registers the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        register_family(
            registry,
            "mczk_webhook_connections_evicted",
            "Connections to the webhook that ended for a new client, by limit: `address` or `total`",
            self.0.clone(),
        );
    }
}

/// The open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    max: usize,
    max_per_address: usize,
    evictions: Evictions,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Entry>,
    addresses: HashMap<IpAddr, Arc<Address>>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    activity: Arc<Activity>,
    eviction: Arc<Eviction>,
}

/// The end of a connection for a new one.
#[derive(Debug, Default)]
struct Eviction {
    ended: AtomicBool,
    waker: AtomicWaker,
}

impl Connections {
    pub(crate) fn new(max: usize, max_per_address: usize, evictions: Evictions) -> Self {
        Self { max, max_per_address, evictions, table: Arc::default() }
    }

    /// A place for a new connection from this address. At a limit, another connection ends.
    pub(crate) fn place(&self, address: IpAddr) -> Place {
        let mut table = self.table();
        let of_address = table.addresses.get(&address).map_or(0, |address| address.open());
        let evicted = if of_address >= self.max_per_address {
            table.evict(|entry| entry.address == address).map(|of| (of, "address"))
        } else if table.open.len() >= self.max {
            table.evict(|_| true).map(|of| (of, "total"))
        } else {
            None
        };
        if let Some((of, limit)) = evicted {
            self.evictions.0.get_or_create(&EvictionLabels { limit }).inc();
            table.warn(of, limit);
        }
        let of = table.addresses.entry(address).or_default().clone();
        let (activity, eviction) = (Arc::new(Activity::new(of.clone())), Arc::<Eviction>::default());
        let id = table.add(Entry { address, activity: activity.clone(), eviction: eviction.clone() });
        Place { id, address: of, activity, eviction, connections: self.clone() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, entry: Entry) -> u64 {
        self.addresses.entry(entry.address).or_default().opened();
        self.next += 1;
        self.open.insert(self.next, entry);
        self.next
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        // An address without connections takes no memory.
        if self.addresses.get(&entry.address).is_some_and(|address| address.closed()) {
            self.addresses.remove(&entry.address);
        }
        Some(entry)
    }

    /// Ends one of these connections, and returns its address.
    fn evict(&mut self, among: impl Fn(&Entry) -> bool) -> Option<IpAddr> {
        let open = self.open.iter().filter(|(_, entry)| among(entry));
        let id = victim(open.map(|(id, entry)| (*id, entry.activity.reads(), entry.activity.phase())))?;
        let entry = self.remove(id)?;
        entry.eviction.ended.store(true, Ordering::Release);
        entry.eviction.waker.wake();
        Some(entry.address)
    }

    /// Names the address of an ended connection in the log, at most once in [`WARNING_PERIOD`].
    fn warn(&mut self, address: IpAddr, limit: &str) {
        if self.warned.is_none_or(|warned| warned.elapsed() > WARNING_PERIOD) {
            self.warned = Some(Instant::now());
            tracing::warn!(%address, limit, "Too many connections: those of slow clients end first");
        }
    }
}

/// The connection that ends for a new one. Of each it takes whether clients of its address read their answers.
fn victim(open: impl Iterator<Item = (u64, bool, Phase)>) -> Option<u64> {
    open.min_by_key(|(_, reads, phase)| match *phase {
        Phase::Busy(since) => (u8::from(*reads), since),
        Phase::Queued(since) => (1, since),
        Phase::Idle(since) => (2, since),
    })
    .map(|(id, ..)| id)
}

/// The place of one connection, until it ends.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    address: Arc<Address>,
    activity: Arc<Activity>,
    eviction: Arc<Eviction>,
    connections: Connections,
}

impl Place {
    /// What the connection waits for, for its guard.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
    }

    /// The clients of the connection's address.
    pub(crate) fn address(&self) -> Arc<Address> {
        self.address.clone()
    }

    /// Returns when another connection has got this place. It is polled with each request, so it only reads a flag.
    pub(crate) fn evicted(&self) -> impl Future<Output = ()> {
        let mut registered: Option<Waker> = None;
        poll_fn(move |context| {
            if registered.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
                self.eviction.waker.register(context.waker());
                registered = Some(context.waker().clone());
            }
            if self.eviction.ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table().remove(self.id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::FutureExt as _;
    use rstest::rstest;

    use super::*;

    const HOSTILE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const KARMADA: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[rstest]
    #[case::none(&[], None)]
    #[case::longest_request(&[(true, 3), (false, 2), (false, 1), (false, 4)], Some(2))]
    #[case::longest_pause(&[(true, 3), (true, 1), (true, 2)], Some(1))]
    fn the_longest_request_ends_first(#[case] open: &[(bool, u64)], #[case] expected: Option<u64>) {
        let start = Instant::now();
        let phases = open.iter().map(|(idle, seconds)| {
            let since = start + Duration::from_secs(*seconds);
            if *idle { Phase::Idle(since) } else { Phase::Busy(since) }
        });
        assert_eq!(victim((0..).zip(phases).map(|(id, phase)| (id, false, phase))), expected);
    }

    #[test]
    fn a_client_that_waits_for_the_server_or_reads_ends_later() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (idle, reads) = ((5, true, Phase::Idle(at(0))), (4, true, Phase::Busy(at(1))));
        let (queued, silent) = ((3, false, Phase::Queued(at(2))), (2, false, Phase::Busy(at(3))));
        let mut open = vec![idle, reads, queued, silent];
        for expected in [2, 4, 3, 5] {
            assert_eq!(victim(open.iter().copied()), Some(expected));
            open.retain(|(id, ..)| *id != expected);
        }
    }

    #[test]
    fn an_address_at_its_limit_ends_its_own_connections() {
        let connections = Connections::new(4, 2, Evictions::default());
        let karmada = connections.place(KARMADA);
        let hostile: Vec<Place> = (0..5).map(|_| connections.place(HOSTILE)).collect();
        let ended: Vec<bool> = hostile.iter().map(|place| place.evicted().now_or_never().is_some()).collect();
        assert_eq!(ended, [true, true, true, false, false]);
        assert!(karmada.evicted().now_or_never().is_none());
        drop(hostile);
        assert_eq!(connections.table().open.len(), 1);
        let addresses: Vec<(IpAddr, usize)> =
            connections.table().addresses.iter().map(|(ip, address)| (*ip, address.open())).collect();
        assert_eq!(addresses, [(KARMADA, 1)]);
    }

    #[test]
    fn a_new_client_gets_the_place_of_the_slowest_one() {
        let connections = Connections::new(2, 2, Evictions::default());
        let karmada = connections.place(KARMADA);
        drop(karmada.activity().begin());
        karmada.activity().flushed(None);
        let first = connections.place(HOSTILE);
        let _second = connections.place("192.0.2.3".parse().unwrap());
        assert!(karmada.evicted().now_or_never().is_none(), "it has answered its client");
        assert!(first.evicted().now_or_never().is_some());
    }
}
