//! `ZooKeeper`'s dynamic configuration: the file of servers that `ZooKeeper` itself rewrites. Pure.

use std::fmt::Write as _;

use crate::server::paths::Paths;
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer, ServerConfig},
        pod_layout,
    },
    tls::ClientTlsMode,
    zookeeper::Role,
};

/// Address on which a server accepts clients in plain text. It is part of the dynamic configuration, which accepts no server
/// without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// All addresses.
    Any,
    /// The pod's own loopback address: clients must use TLS, but the parent process still needs a session.
    Loopback,
    /// The address of the server's host name, for several servers on one machine.
    Host,
}

impl ClientAddress {
    /// The address for servers with this configuration.
    #[must_use]
    pub fn of(paths: &Paths, config: &ServerConfig) -> Self {
        if !paths.address.is_unspecified() {
            Self::Host
        } else if config.client_tls.as_ref().is_some_and(|tls| tls.mode == ClientTlsMode::Required) {
            Self::Loopback
        } else {
            Self::Any
        }
    }

    fn as_text(self, host: &str) -> &str {
        match self {
            Self::Any => "0.0.0.0",
            Self::Loopback => "127.0.0.1",
            Self::Host => host,
        }
    }
}

/// The line of a server.
#[must_use]
pub fn line(server: &ConfiguredServer, address: ClientAddress) -> String {
    let role = match server.role {
        Role::Voter => "participant",
        Role::Observer => "observer",
    };
    // The colons of an IPv6 address would be read as ports.
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    format!(
        "server.{}={host}:{}:{}:{role};{}:{}",
        server.id,
        pod_layout::QUORUM_PORT,
        pod_layout::ELECTION_PORT,
        address.as_text(&host),
        pod_layout::CLIENT_PORT
    )
}

/// The configuration that seeds a server. It has no version, so every living configuration is newer.
#[must_use]
pub fn seed(servers: &[ConfiguredServer], address: ClientAddress) -> String {
    servers.iter().fold(String::new(), |mut text, server| {
        let _ = writeln!(text, "{}", line(server, address));
        text
    })
}

/// Replaces the client address of server `id`. `None` if the configuration has that address already or does not name the
/// server.
#[must_use]
pub fn with_client_address(text: &str, id: i32, address: ClientAddress) -> Option<String> {
    let prefix = format!("server.{id}=");
    let current = parse(text)?.servers.into_iter().find(|server| server.id == id)?;
    let wanted = line(&current, address);
    if text.lines().any(|line| line.trim() == wanted) {
        return None;
    }
    Some(text.lines().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "{}", if line.trim().starts_with(&prefix) { &wanted } else { line });
        all
    }))
}

/// Parses a dynamic configuration from a file or from `ZooKeeper`'s answer. `None` if the text is no configuration.
#[must_use]
pub fn parse(text: &str) -> Option<Configuration> {
    let mut parsed = Configuration::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=')?;
        if key == "version" {
            parsed.version = i64::from_str_radix(value.trim(), 16).ok()?;
        } else if let Some(id) = key.strip_prefix("server.") {
            parsed.servers.push(server(id.trim().parse().ok()?, value.trim())?);
        }
    }
    parsed.servers.sort();
    (!parsed.servers.is_empty()).then_some(parsed)
}

/// Parses `host:2888:3888:role;...`. The host may be an IPv6 address in brackets.
fn server(id: i32, value: &str) -> Option<ConfiguredServer> {
    let quorum = value.split(';').next()?;
    // The first of several addresses is the server's name.
    let first = quorum.split('|').next()?;
    let (host, rest) = match first.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:")?,
        None => first.split_once(':')?,
    };
    let role = if quorum.ends_with(":observer") { Role::Observer } else { Role::Voter };
    (rest.split(':').count() >= 2).then(|| ConfiguredServer { id, host: host.to_owned(), role })
}
