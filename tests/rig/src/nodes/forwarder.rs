//! Delays packets between two clusters, for kernels without netem. The router sends them to a TUN device. This program
//! reads each from the device, writes it back after the delay, and the kernel routes it on.
#![allow(
    unsafe_code,
    reason = "A TUN device is attached by an ioctl(2), which the types of nix cannot check: it reads a structure of 40 \
              bytes that lives until it returns."
)]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

/// With more held packets, further ones are dropped, as on a real line.
const MOST_HELD: usize = 20_000;
/// Time between two reads of the file of lines, without packets.
const REREAD: Duration = Duration::from_millis(50);
/// The same with packets. It is shorter than the time from the change of the file to the change of the routes, so that no
/// packet meets the former lines.
const RECENT: Duration = Duration::from_millis(2);

/// A direction between two clusters, by their numbers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Line {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) ms: f64,
}

/// A line and its held packets.
#[derive(Debug)]
struct Held {
    line: Line,
    packets: VecDeque<(Instant, Vec<u8>)>,
}

/// All lines. Packets of one line keep their order.
#[derive(Debug, Default)]
struct Forwarder {
    lines: Vec<Held>,
}

impl Forwarder {
    /// Sets new lines. Held packets leave at their time, even on a removed line.
    fn replace(&mut self, lines: &[Line]) {
        for held in &mut self.lines {
            held.line.ms = 0.0;
        }
        for line in lines {
            match self.lines.iter_mut().find(|held| (held.line.from, held.line.to) == (line.from, line.to)) {
                Some(held) => held.line.ms = line.ms,
                None => self.lines.push(Held { line: *line, packets: VecDeque::new() }),
            }
        }
    }

    /// Accepts a packet. Returns it if there is no line to hold it.
    fn accept(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let (from, to) = clusters(packet)?;
        let Some(held) = self.lines.iter_mut().find(|held| (held.line.from, held.line.to) == (from, to)) else {
            return Some(packet.to_vec());
        };
        if held.packets.len() >= MOST_HELD {
            return None;
        }
        let due = now + Duration::try_from_secs_f64(held.line.ms / 1000.0).unwrap_or_default();
        // On a line that became faster, packets keep their order.
        let due = held.packets.back().map_or(due, |(last, _)| due.max(*last));
        held.packets.push_back((due, packet.to_vec()));
        None
    }

    /// The time of the next packet.
    fn next(&self) -> Option<Instant> {
        self.lines.iter().filter_map(|held| held.packets.front()).map(|(due, _)| *due).min()
    }

    /// The next packet that is due.
    fn release(&mut self, now: Instant) -> Option<Vec<u8>> {
        let held = self.lines.iter_mut().find(|held| held.packets.front().is_some_and(|(due, _)| *due <= now))?;
        held.packets.pop_front().map(|(_, packet)| packet)
    }
}

/// The numbers of the clusters of an IPv4 packet: the third byte of each address.
fn clusters(packet: &[u8]) -> Option<(u8, u8)> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    Some((*packet.get(14)?, *packet.get(18)?))
}

nix::ioctl_write_int!(attach_tun, b'T', 202);

/// The part of the kernel's `struct ifreq` that TUNSETIFF reads.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// No Ethernet, and no header of the driver.
const IFF_TUN: u16 = 1;
const IFF_NO_PI: u16 = 0x1000;

fn open(device: &str) -> Result<File> {
    let mut name = [0; 16];
    ensure!(device.len() < name.len(), "{device} is too long for a device");
    for (to, from) in name.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun: load the kernel's module tun")?;
    let request = Request { name, flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    let address = (&raw const request).expose_provenance();
    // SAFETY: the descriptor is open, and the kernel reads the 40 bytes of `request` before the call returns.
    unsafe { attach_tun(file.as_raw_fd(), address.try_into()?) }
        .with_context(|| format!("cannot attach to {device}"))?;
    Ok(file)
}

/// Runs until it is killed. `lines` is a file with a list of [`Line`]s; the forwarder follows its changes.
pub(crate) fn forward(device: &str, lines: &Path) -> Result<()> {
    let mut tun = open(device)?;
    let mut forwarder = Forwarder::default();
    let mut seen: Option<SystemTime> = None;
    let mut read_at = Instant::now();
    reread(lines, &mut seen, &mut forwarder);
    let mut buffer = vec![0; 65_536];
    loop {
        while let Some(packet) = forwarder.release(Instant::now()) {
            give(&mut tun, &packet);
        }
        let wait = forwarder.next().map_or(REREAD, |due| due.saturating_duration_since(Instant::now())).min(REREAD);
        let mut source = [PollFd::new(tun.as_fd(), PollFlags::POLLIN)];
        let packets = match ppoll(&mut source, Some(TimeSpec::from_duration(wait)), None) {
            Ok(count) => count > 0,
            Err(nix::Error::EINTR) => false,
            Err(e) => return Err(e).context("cannot wait for packets"),
        };
        if read_at.elapsed() >= if packets { RECENT } else { REREAD } {
            read_at = Instant::now();
            reread(lines, &mut seen, &mut forwarder);
        }
        if !packets {
            continue;
        }
        loop {
            match tun.read(&mut buffer) {
                Ok(length) => {
                    let packet = buffer.get(..length).unwrap_or_default();
                    if let Some(packet) = forwarder.accept(Instant::now(), packet) {
                        give(&mut tun, &packet);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e).context("cannot read packets"),
            }
        }
    }
}

fn reread(path: &Path, seen: &mut Option<SystemTime>, forwarder: &mut Forwarder) {
    let changed = fs::metadata(path).and_then(|file| file.modified()).ok();
    if changed.is_none() || changed == *seen {
        return;
    }
    // The rig replaces the file atomically. After a wrong edit by hand, the lines stay as they are.
    match fs::read(path).map_err(anyhow::Error::from).and_then(|text| Ok(serde_json::from_slice::<Vec<Line>>(&text)?)) {
        Ok(lines) => {
            eprintln!("{} lines", lines.len());
            forwarder.replace(&lines);
            *seen = changed;
        }
        Err(e) => eprintln!("{}: {e:#}", path.display()),
    }
}

fn give(tun: &mut File, packet: &[u8]) {
    // The kernel may refuse a packet. It is lost, as on a real line.
    if let Err(e) = tun.write_all(packet) {
        eprintln!("a packet is lost: {e}");
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn packet(from: u8, to: u8, mark: u8) -> Vec<u8> {
        let mut packet = vec![0; 21];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 211, from, 7]);
        packet[16..20].copy_from_slice(&[10, 210, to, 2]);
        packet[20] = mark;
        packet
    }

    fn forwarder(ms: f64) -> Forwarder {
        let mut forwarder = Forwarder::default();
        forwarder.replace(&[Line { from: 1, to: 2, ms }]);
        forwarder
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_packet_comes_out_after_its_time_and_not_before() {
        let (mut forwarder, now) = (forwarder(100.0), Instant::now());
        assert_eq!(forwarder.accept(now, &packet(1, 2, 0)), None);
        assert_eq!(forwarder.next(), Some(now + 100 * MS));
        assert_eq!(forwarder.release(now + 99 * MS), None);
        assert_eq!(forwarder.release(now + 100 * MS), Some(packet(1, 2, 0)));
        assert_eq!(forwarder.next(), None);
    }

    #[test]
    fn what_no_line_holds_passes_at_once() {
        let (mut forwarder, now) = (forwarder(100.0), Instant::now());
        assert_eq!(forwarder.accept(now, &packet(2, 1, 0)), Some(packet(2, 1, 0)));
    }

    #[test]
    fn what_is_no_ipv4_packet_is_lost() {
        let (mut forwarder, now) = (forwarder(100.0), Instant::now());
        for bytes in [&[] as &[u8], &[0x45, 1], &[0x60; 40]] {
            assert_eq!(forwarder.accept(now, bytes), None);
        }
        assert_eq!(forwarder.next(), None);
    }

    #[test]
    fn packets_keep_their_order_when_a_line_becomes_faster_or_is_taken_away() {
        let (mut forwarder, now) = (forwarder(100.0), Instant::now());
        forwarder.accept(now, &packet(1, 2, 1));
        forwarder.replace(&[Line { from: 1, to: 2, ms: 1.0 }]);
        forwarder.accept(now, &packet(1, 2, 2));
        forwarder.replace(&[]);
        forwarder.accept(now, &packet(1, 2, 3));
        let marks: Vec<_> = std::iter::from_fn(|| forwarder.release(now + 100 * MS))
            .filter_map(|packet| packet.last().copied())
            .collect();
        assert_eq!(marks, [1, 2, 3]);
    }

    #[test]
    fn a_full_line_loses_packets() {
        let (mut forwarder, now) = (forwarder(100.0), Instant::now());
        for _ in 0..=MOST_HELD {
            forwarder.accept(now, &packet(1, 2, 0));
        }
        assert_eq!(std::iter::from_fn(|| forwarder.release(now + 100 * MS)).count(), MOST_HELD);
    }
}
