//! The open connections of a server, and which of them ends for a new client at a limit.
//!
//! A new client never waits for a place, so slow clients cannot keep the others waiting. At a limit, the connection ends
//! whose client owes the rest of a handshake or request for the longest time. If no client owes any, it is the connection
//! that was idle for the longest time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::Notify;

use crate::runtime::{
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
    /// Number of connections from each address.
    addresses: HashMap<IpAddr, usize>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    activity: Arc<Activity>,
    evicted: Arc<Notify>,
}

impl Connections {
    pub(crate) fn new(max: usize, max_per_address: usize, evictions: Evictions) -> Self {
        Self { max, max_per_address, evictions, table: Arc::default() }
    }

    /// A place for a new connection from this address. At a limit, another connection ends.
    pub(crate) fn place(&self, address: IpAddr) -> Place {
        let mut table = self.table();
        let of_address = table.addresses.get(&address).copied().unwrap_or(0);
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
        let (activity, evicted) = (Arc::<Activity>::default(), Arc::<Notify>::default());
        let id = table.add(Entry { address, activity: activity.clone(), evicted: evicted.clone() });
        Place { id, activity, evicted, connections: self.clone() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, entry: Entry) -> u64 {
        *self.addresses.entry(entry.address).or_default() += 1;
        self.next += 1;
        self.open.insert(self.next, entry);
        self.next
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        if let Some(count) = self.addresses.get_mut(&entry.address) {
            *count -= 1;
            // An address without connections takes no memory.
            if *count == 0 {
                self.addresses.remove(&entry.address);
            }
        }
        Some(entry)
    }

    /// Ends one of these connections, and returns its address.
    fn evict(&mut self, among: impl Fn(&Entry) -> bool) -> Option<IpAddr> {
        let open = self.open.iter().filter(|(_, entry)| among(entry));
        let id = victim(open.map(|(id, entry)| (*id, entry.activity.phase())))?;
        let entry = self.remove(id)?;
        entry.evicted.notify_one();
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

/// The connection that ends for a new one.
fn victim(open: impl Iterator<Item = (u64, Phase)>) -> Option<u64> {
    open.min_by_key(|(_, phase)| match *phase {
        Phase::Busy(since) => (false, since),
        Phase::Idle(since) => (true, since),
    })
    .map(|(id, _)| id)
}

/// The place of one connection, until it ends.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    activity: Arc<Activity>,
    evicted: Arc<Notify>,
    connections: Connections,
}

impl Place {
    /// What the connection waits for, for its guard.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
    }

    /// Returns when another connection has got this place.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
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
        assert_eq!(victim((0..).zip(phases)), expected);
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
        assert_eq!(connections.table().addresses, HashMap::from([(KARMADA, 1)]));
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
