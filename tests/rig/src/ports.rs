//! The ports of a rig: one block, below the ephemeral ports of the kernel.

use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Below 32768, where the ephemeral range begins: an outgoing connection could hold a port in it.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 100;
const BLOCK: u16 = 100;
/// The first port of a block for servers of tests.
const SPARE: u16 = 60;

/// The ports of one rig.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) base: u16,
}

impl Ports {
    pub(crate) const fn etcd(self) -> u16 {
        self.base
    }
    pub(crate) const fn etcd_peer(self) -> u16 {
        self.base + 1
    }
    pub(crate) const fn aggregated_apiserver(self) -> u16 {
        self.base + 2
    }
    pub(crate) const fn webhook(self) -> u16 {
        self.base + 3
    }
    /// Metrics and health of karmada-webhook, karmada-controller-manager and karmada-scheduler, in this order.
    pub(crate) const fn webhook_probes(self) -> (u16, u16) {
        (self.base + 4, self.base + 5)
    }
    pub(crate) const fn controllers_probes(self) -> (u16, u16) {
        (self.base + 6, self.base + 7)
    }
    pub(crate) const fn scheduler_probes(self) -> (u16, u16) {
        (self.base + 8, self.base + 9)
    }
    /// Cluster 0 is Karmada, the others are the member clusters.
    pub(crate) const fn apiserver(self, cluster: u16) -> u16 {
        self.base + 10 + 4 * cluster
    }
    pub(crate) const fn kube_controllers(self, cluster: u16) -> u16 {
        self.base + 11 + 4 * cluster
    }
    pub(crate) const fn agent_probes(self, cluster: u16) -> (u16, u16) {
        (self.base + 12 + 4 * cluster, self.base + 13 + 4 * cluster)
    }
}

/// A block of ports that no other process uses while this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) ports: Ports,
    _lock: File,
}

/// Claims a free block. The search begins at a block that depends on `seed`, so that a rig tends to get the same ports.
pub(crate) fn claim(locks: &Path, seed: &Path) -> Result<Claim> {
    fs::create_dir_all(locks).with_context(|| format!("cannot make {}", locks.display()))?;
    let start = fnv(seed.as_os_str().as_encoded_bytes());
    for i in 0..BLOCKS {
        let base = FIRST + (start % BLOCKS + i) % BLOCKS * BLOCK;
        let Some(lock) = try_lock(&locks.join(format!("{base}.lock")))? else {
            continue;
        };
        if (base..base + BLOCK).all(is_free) {
            return Ok(Claim { ports: Ports { base }, _lock: lock });
        }
    }
    bail!(
        "no {BLOCK} free ports in a row between {FIRST} and {}: take other rigs down (`rig down --dir DIR`)",
        FIRST + BLOCKS * BLOCK
    )
}

/// Claims a spare port of a block while the returned file is open.
pub(crate) fn spare(locks: &Path, ports: Ports) -> Result<(u16, File)> {
    fs::create_dir_all(locks).with_context(|| format!("cannot make {}", locks.display()))?;
    for port in ports.base + SPARE..ports.base + BLOCK {
        if let Some(lock) = try_lock(&locks.join(format!("{port}.lock")))?
            && is_free(port)
        {
            return Ok((port, lock));
        }
    }
    bail!("all {} spare ports of this rig are taken", BLOCK - SPARE)
}

/// Opens and locks a file. None if another handle holds the lock.
pub(crate) fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// FNV-1a, folded: unlike the standard hasher, it is the same in every build of this program.
fn fnv(bytes: &[u8]) -> u16 {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_le_bytes();
    u16::from_le_bytes([a ^ c, b ^ d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rigs_that_start_at_once_get_different_blocks() -> Result<()> {
        let locks = tempfile::tempdir()?;
        let seed = Path::new("/somewhere/rig");
        let first = claim(locks.path(), seed)?;
        let second = claim(locks.path(), seed)?;
        assert_ne!(first.ports.base, second.ports.base);
        let base = first.ports.base;
        drop(first);
        assert_eq!(claim(locks.path(), seed)?.ports.base, base);
        Ok(())
    }

    #[test]
    fn a_block_with_a_port_in_use_is_passed_over() -> Result<()> {
        let locks = tempfile::tempdir()?;
        let seed = Path::new("/somewhere/else");
        let base = claim(locks.path(), seed)?.ports.base;
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 42))?;
        assert_ne!(claim(locks.path(), seed)?.ports.base, base);
        Ok(())
    }

    #[test]
    fn spare_ports_are_handed_out_once() -> Result<()> {
        let locks = tempfile::tempdir()?;
        let block = claim(locks.path(), Path::new("/spare"))?;
        let (a, held) = spare(locks.path(), block.ports)?;
        let (b, _held) = spare(locks.path(), block.ports)?;
        assert_ne!(a, b);
        drop(held);
        assert_eq!(spare(locks.path(), block.ports)?.0, a);
        Ok(())
    }

    #[test]
    fn every_role_has_a_port_of_its_own_below_the_ephemeral_ones() {
        for base in [FIRST, FIRST + (BLOCKS - 1) * BLOCK] {
            let p = Ports { base };
            let mut all = vec![p.etcd(), p.etcd_peer(), p.aggregated_apiserver(), p.webhook()];
            for (a, b) in [p.webhook_probes(), p.controllers_probes(), p.scheduler_probes()] {
                all.extend([a, b]);
            }
            for cluster in 0..=crate::MOST_MEMBERS.into() {
                let (a, b) = p.agent_probes(cluster);
                all.extend([p.apiserver(cluster), p.kube_controllers(cluster), a, b]);
            }
            let count = all.len();
            let all: BTreeSet<_> = all.into_iter().collect();
            assert_eq!(all.len(), count);
            assert!(all.iter().all(|port| (base..base + SPARE).contains(port) && *port < 30_000));
        }
    }
}
