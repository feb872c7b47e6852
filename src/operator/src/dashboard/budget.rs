//! How many questions about tokens callers may cause at the API server. Questions that were answered by a right a short time
//! ago do not count.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;

/// Questions at once, and the time after which one more may follow: of one address, and of all together.
const OF_ADDRESS: (u32, Duration) = (20, Duration::from_millis(500));
const OF_ALL: (u32, Duration) = (40, Duration::from_millis(100));

/// The times from which nothing counts against the addresses that have asked, and against all together. Each question moves
/// them. The number of addresses is bounded, because all questions count together and old times are forgotten.
#[derive(Debug, Default)]
pub(super) struct Budget {
    addresses: HashMap<IpAddr, Instant>,
    all: Option<Instant>,
}

impl Budget {
    /// Counts a question. False if the address, or all together, may not ask now: then nothing counts.
    pub(super) fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        self.addresses.retain(|_, free| *free > now);
        let address = network(address);
        let of_address = after_one_more(self.addresses.get(&address).copied(), OF_ADDRESS, now);
        let of_all = after_one_more(self.all, OF_ALL, now);
        let (Some(of_address), Some(of_all)) = (of_address, of_all) else { return false };
        self.addresses.insert(address, of_address);
        self.all = Some(of_all);
        true
    }
}

/// The time from which nothing counts after one more question; `None` if it is one too many.
fn after_one_more(free: Option<Instant>, (most, each): (u32, Duration), now: Instant) -> Option<Instant> {
    let after = free.unwrap_or(now).max(now) + each;
    (after <= now + each * most).then_some(after)
}

/// Who an address is: IPv6 gives 2^64 addresses to one client.
fn network(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn taken(budget: &mut Budget, address: &str, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.take(address.parse().unwrap(), now)).count()
    }

    #[test]
    fn an_address_has_its_own_budget() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        assert_eq!(taken(&mut budget, "10.0.0.1", now), 20);
        assert_eq!(taken(&mut budget, "10.0.0.2", now), 20);
        assert_eq!(taken(&mut budget, "10.0.0.1", now + Duration::from_secs(3)), 6);
        assert_eq!(taken(&mut budget, "10.0.0.1", now + Duration::from_secs(60)), 20);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        assert_eq!(taken(&mut budget, "2001:db8::1", now), 20);
        assert_eq!(taken(&mut budget, "2001:db8::ffff:1", now), 0);
        assert_eq!(taken(&mut budget, "2001:db8:0:1::1", now), 20);
    }

    #[test]
    fn many_addresses_share_a_budget() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let mut all = 0;
        for second in 0..60 {
            for address in 0..1000_u32 {
                let address = Ipv4Addr::from(address).into();
                all += usize::from(budget.take(address, now + Duration::from_secs(second)));
            }
        }
        assert!(all <= 40 + 59 * 10, "{all} questions in a minute");
        assert!(budget.addresses.len() < 200, "{} addresses", budget.addresses.len());
    }
}
