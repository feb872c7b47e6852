//! The open connections of a server, and which of them ends for a new client at a limit.
//!
//! A new client never waits for a place, so slow clients cannot keep the others waiting. At a limit, the connection ends
//! that comes first by [`order`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{
    permits::{Address, FEW},
    slow_clients::{Activity, ConnectionPhase},
    telemetry::register_family,
};

/// Time between two warnings about connections that end at a limit.
const WARNING_PERIOD: Duration = Duration::from_secs(60);

/// One place of so many is a reserve for addresses that have not read an answer yet.
const PER_RESERVED: usize = 12;

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
    table: Arc<Mutex<ConnectionTable>>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
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
        let mut table = self.table.lock();
        let of_address = table.addresses.get(&address).map_or(0, |address| address.open());
        let evicted = if of_address >= self.max_per_address {
            table.evict(0, |entry| entry.address == address).map(|of| (of, "address"))
        } else if table.open.len() >= self.max {
            table.evict(self.max / PER_RESERVED, |_| true).map(|of| (of, "total"))
        } else {
            None
        };
        if let Some((of, limit)) = evicted {
            self.evictions.0.get_or_create(&EvictionLabels { limit }).inc();
            table.warn(of, limit);
        }
        let of = table.addresses.entry(address).or_default().clone();
        let (activity, eviction) = (Arc::new(Activity::new(of)), Arc::<Eviction>::default());
        let id = table.add(Entry { address, activity: activity.clone(), eviction: eviction.clone() });
        Place { id, activity, eviction, connections: self.clone() }
    }
}

impl ConnectionTable {
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

    /// Ends one of these connections, and returns its address. So many places are a reserve for new addresses.
    fn evict(&mut self, reserve: usize, among: impl Fn(&Entry) -> bool) -> Option<IpAddr> {
        let open = self.open.iter().filter(|(_, entry)| among(entry));
        let open = open.map(|(id, Entry { activity, .. })| {
            (*id, activity.phase(), activity.address().reads(), activity.address().open())
        });
        let entry = self.remove(victim(open, reserve)?)?;
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

/// The connection that ends for a new one, by [`order`]. Of each it takes the phase, whether its address reads its answers, and
/// how many connections are open from there.
///
/// While fewer handshakes and requests of addresses without answers are open than the reserve holds, an idle connection ends.
/// Otherwise polite clients that take all places would leave a new client none, and Karmada is new at first.
fn victim(open: impl Iterator<Item = (u64, ConnectionPhase, bool, usize)>, reserve: usize) -> Option<u64> {
    let (mut new, mut first, mut first_idle) = (0, None, None);
    for (id, phase, reads, open) in open {
        let is_idle = matches!(phase, ConnectionPhase::Idle(_));
        let key = Some((Reverse(order(phase, reads, open)), id));
        new += usize::from(!reads && !is_idle);
        first = first.max(key);
        if is_idle {
            first_idle = first_idle.max(key);
        }
    }
    let chosen = if new < reserve { first_idle.or(first) } else { first };
    chosen.map(|(_, id)| id)
}

/// Which connection ends before others. A client that owes the rest of a handshake or request ends before one that waits for
/// the server. An idle connection ends before a request of an address that reads its answers, since Karmada does not repeat a
/// call. Polite clients of one address could take all places, so the address with most connections loses one first. Addresses
/// with few connections are equal, and what lasts longest ends.
fn order(phase: ConnectionPhase, reads: bool, open: usize) -> (u8, Reverse<usize>, Instant) {
    let (ConnectionPhase::Busy(since) | ConnectionPhase::Queued(since) | ConnectionPhase::Idle(since)) = phase;
    let group = match phase {
        ConnectionPhase::Busy(_) if !reads => 0,
        ConnectionPhase::Queued(_) if !reads => 1,
        ConnectionPhase::Idle(_) => 2,
        ConnectionPhase::Busy(_) | ConnectionPhase::Queued(_) => 3,
    };
    (group, Reverse(open / FEW), since)
}

/// The place of one connection, until it ends.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    activity: Arc<Activity>,
    eviction: Arc<Eviction>,
    connections: Connections,
}

impl Place {
    /// What the connection waits for, for its guard.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
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
        self.connections.table.lock().remove(self.id);
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
            if *idle { ConnectionPhase::Idle(since) } else { ConnectionPhase::Busy(since) }
        });
        assert_eq!(victim((0..).zip(phases).map(|(id, phase)| (id, phase, false, 1)), 0), expected);
    }

    #[test]
    fn a_client_that_waits_for_the_server_or_reads_ends_later() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (idle, reads) = ((5, ConnectionPhase::Idle(at(0)), true, 1), (4, ConnectionPhase::Busy(at(1)), true, 1));
        let (queued, silent) =
            ((3, ConnectionPhase::Queued(at(2)), false, 1), (2, ConnectionPhase::Busy(at(3)), false, 1));
        let mut open = vec![idle, reads, queued, silent];
        for expected in [2, 3, 5, 4] {
            assert_eq!(victim(open.iter().copied(), 0), Some(expected));
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
        assert_eq!(connections.table.lock().open.len(), 1);
        let addresses: Vec<(IpAddr, usize)> =
            connections.table.lock().addresses.iter().map(|(ip, address)| (*ip, address.open())).collect();
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

    /// A connection whose client has read an answer, and now pauses.
    fn polite(connections: &Connections, address: IpAddr) -> Place {
        let place = connections.place(address);
        drop(place.activity().begin());
        place.activity().flushed(None);
        place
    }

    fn ended(place: &Place) -> bool {
        place.evicted().now_or_never().is_some()
    }

    #[test]
    fn a_request_in_flight_stays_beside_polite_idle_connections() {
        let connections = Connections::new(4, 4, Evictions::default());
        let karmada = polite(&connections, KARMADA);
        let _request = karmada.activity().begin();
        let idle: Vec<Place> = (0..3).map(|_| polite(&connections, HOSTILE)).collect();
        let _further: Vec<Place> = (0..3).map(|_| polite(&connections, HOSTILE)).collect();
        assert_eq!((ended(&karmada), idle.iter().filter(|place| ended(place)).count()), (false, 3));
    }

    #[test]
    fn idle_connections_of_the_address_with_most_end_first() {
        let most = 40;
        let connections = Connections::new(most + 2, most, Evictions::default());
        let karmada = [polite(&connections, KARMADA), polite(&connections, KARMADA)];
        let idle: Vec<Place> = (0..most).map(|_| polite(&connections, HOSTILE)).collect();
        let _further = polite(&connections, "192.0.2.3".parse().unwrap());
        assert_eq!((karmada.iter().any(ended), idle.iter().filter(|place| ended(place)).count()), (false, 1));
    }

    #[test]
    fn new_addresses_have_a_reserve_beside_polite_idle_connections() {
        let (all, reserve) = (2 * PER_RESERVED, 2);
        let connections = Connections::new(all, all, Evictions::default());
        let idle: Vec<Place> = (0..all).map(|_| polite(&connections, HOSTILE)).collect();
        let new = ["192.0.2.3", "192.0.2.4", "192.0.2.5"].map(|address| connections.place(address.parse().unwrap()));
        assert_eq!(new.each_ref().map(ended), [true, false, false], "beyond the reserve the slowest one ends");
        assert_eq!(idle.iter().filter(|place| ended(place)).count(), reserve);
    }
}
