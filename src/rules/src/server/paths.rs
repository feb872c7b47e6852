//! Files that `mczk server` writes for `ZooKeeper`, and the address that `ZooKeeper` listens on.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// Folders of a server and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Folder of the incarnation and id that the volume serves. It contains `conf` and `data`.
    pub active_data: PathBuf,
    /// Folder for files that need not outlive the process.
    pub scratch: PathBuf,
    /// Address to listen on. The unspecified address of either family means all addresses of both.
    pub address: IpAddr,
    /// File that replaces DNS in tests.
    pub hosts: Option<PathBuf>,
}

impl Paths {
    /// Folder of the configuration. `ZooKeeper` writes to it.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.active_data.join("conf")
    }

    /// Folder of snapshots and transaction logs.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.active_data.join("data")
    }

    /// The static configuration.
    #[must_use]
    pub fn zoo_cfg(&self) -> PathBuf {
        self.conf().join("zoo.cfg")
    }

    /// The dynamic configuration that `mczk server` seeds. `ZooKeeper` writes newer ones next to it.
    #[must_use]
    pub fn seed(&self) -> PathBuf {
        self.conf().join("zoo.cfg.dynamic")
    }

    /// Key and certificate chain of the quorum, in one file.
    #[must_use]
    pub fn quorum_identity(&self) -> PathBuf {
        self.scratch.join("quorum.pem")
    }

    /// Authorities of the quorum.
    #[must_use]
    pub fn quorum_trust(&self) -> PathBuf {
        self.scratch.join("quorum-ca.pem")
    }

    /// Key and certificate chain for clients, in one file.
    #[must_use]
    pub fn client_identity(&self) -> PathBuf {
        self.scratch.join("client.pem")
    }

    /// Authorities of clients.
    #[must_use]
    pub fn client_trust(&self) -> PathBuf {
        self.scratch.join("client-ca.pem")
    }

    /// Flags that the process list must not show.
    #[must_use]
    pub fn secret_flags(&self) -> PathBuf {
        self.scratch.join("java.flags")
    }

    /// Security properties of the Java virtual machine.
    #[must_use]
    pub fn security_properties(&self) -> PathBuf {
        self.scratch.join("java.security")
    }

    /// `ZooKeeper`'s log configuration.
    #[must_use]
    pub fn logback(&self) -> PathBuf {
        self.scratch.join("logback.xml")
    }

    /// Address under which the parent process reaches its own server. It is of IPv4 even in a pod of IPv6
    /// alone, since a kernel without IPv6 has no other loopback address.
    #[must_use]
    pub fn own_address(&self) -> IpAddr {
        if self.address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { self.address }
    }

    /// Address on which `ZooKeeper` listens. For 0.0.0.0 Java listens on all addresses of both families, and a kernel
    /// without IPv6 refuses `::`.
    pub(super) fn zookeeper_address(&self) -> IpAddr {
        if self.address.is_unspecified() { Ipv4Addr::UNSPECIFIED.into() } else { self.address }
    }
}
