//! Connections to election ports over which a server sends in vain, by the kernel's table of connections.
//!
//! A firewall may forget a connection, and drop its packets. `ZooKeeper` keeps one connection to each other server, and opens
//! no second one while the first is open. The kernel gives up after a quarter of an hour.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use mczk_api::contract::pod_layout::ELECTION_PORT;

/// The number of retransmissions after which a connection counts: 3 s after the first packet, and more over a long way.
const MANY: u32 = 4;
/// State of an open connection.
const ESTABLISHED: &str = "01";

/// The other ends of open election connections with data that no answer acknowledges. `table` is `/proc/net/tcp` or
/// `/proc/net/tcp6`. A line that it cannot read counts as none.
#[must_use]
pub fn unanswered(table: &str) -> BTreeSet<IpAddr> {
    table.lines().filter_map(unanswered_peer).collect()
}

fn unanswered_peer(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote, state) = (end(fields.next()?)?, end(fields.next()?)?, fields.next()?);
    let retransmissions = u32::from_str_radix(fields.nth(2)?, 16).ok()?;
    let is_election = local.1 == ELECTION_PORT || remote.1 == ELECTION_PORT;
    (is_election && state == ESTABLISHED && retransmissions >= MANY).then_some(remote.0)
}

/// One end of a connection: address and port. The kernel writes each four bytes of the address as a number of this machine.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[cfg(target_endian = "little")]
mod tests {
    use rstest::rstest;

    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    /// Port 3888 is 0F30, and 10.99.4.2 is 0204630A.
    #[rstest]
    #[case::own_connection(
        "0: 0105630A:B1C2 0204630A:0F30 01 00000119:00000000 01:00000150 00000004 1000 0 77",
        Some("10.99.4.2")
    )]
    #[case::of_the_other_one(
        "0: 0105630A:0F30 0204630A:B1C2 01 00000119:00000000 01:00000150 00000010 1000 0 77",
        Some("10.99.4.2")
    )]
    #[case::mapped(
        "1: 0000000000000000FFFF00000105630A:0F30 0000000000000000FFFF00000204630A:B1C2 01 00000119:0 01:5 00000005 0 0 7",
        Some("10.99.4.2")
    )]
    #[case::ipv6(
        "1: B80D01200000000000000000FF000000:0F30 B80D0120000000000000000001000000:B1C2 01 00000119:0 01:5 00000005 0 0 7",
        Some("2001:db8::1")
    )]
    #[case::few_retransmissions(
        "0: 0105630A:B1C2 0204630A:0F30 01 00000119:00000000 01:00000150 00000003 1000 0 77",
        None
    )]
    #[case::idle("0: 0105630A:B1C2 0204630A:0F30 01 00000000:00000000 02:00000150 00000000 1000 0 77", None)]
    #[case::another_port("0: 0105630A:B1C2 0204630A:0B48 01 00000119:00000000 01:00000150 00000009 1000 0 77", None)]
    #[case::it_opens("0: 0105630A:B1C2 0204630A:0F30 02 00000001:00000000 01:00000150 00000006 1000 0 77", None)]
    #[case::cut_off("0: 0105630A:B1C2 0204630A:0F30 01", None)]
    #[case::no_address("0: 01:B1C2 02:0F30 01 00000119:00000000 01:00000150 00000009 1000 0 77", None)]
    fn a_connection_that_sends_in_vain_is_found(#[case] line: &str, #[case] expected: Option<&str>) {
        let found: Vec<String> = unanswered(&format!("{HEAD}\n   {line}\n")).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}
