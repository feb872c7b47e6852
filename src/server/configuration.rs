//! The files that `ZooKeeper` starts with, and the flags of its Java virtual machine. Pure: texts from values.
//!
//! The list of servers stands in a file of its own, which `ZooKeeper` rewrites; all else stands in `zoo.cfg`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::{
    api::{
        pod::ZooCfgEntry,
        tls::{ClientCertificates, ClientTlsMode},
        zookeeper::Role,
    },
    contract::{
        control_api::{Configuration, ConfiguredServer, ServerConfig},
        pod_layout,
    },
};

/// Settings that people may not choose, since the ensemble's safety or what runs around `ZooKeeper` rests on them: without
/// `forceSync` what was acknowledged may be lost with the power, an oracle makes one of two a quorum, a leader that does not
/// serve and sessions of one server alone prove no quorum to those who ask, and others would lock the parent process out.
const OWNED: [&str; 38] = [
    "ssl.clientAuth",
    "dataDir",
    "dataLogDir",
    "clientPort",
    "clientPortAddress",
    "secureClientPort",
    "secureClientPortAddress",
    "dynamicConfigFile",
    "reconfigEnabled",
    "standaloneEnabled",
    "skipACL",
    "sslQuorum",
    "sslQuorumReloadCertFiles",
    "portUnification",
    "client.portUnification",
    "client.certReload",
    "serverCnxnFactory",
    "quorumListenOnAllIPs",
    "4lw.commands.whitelist",
    "admin.enableServer",
    "admin.serverPort",
    "peerType",
    "version",
    "db.autocreate",
    "DigestAuthenticationProvider.superDigest",
    "metricsProvider.httpPort",
    "electionAlg",
    "forceSync",
    "leaderServes",
    "oraclePath",
    "localSessionsEnabled",
    "localSessionsUpgradingEnabled",
    "snapshot.trust.empty",
    "enforce.auth.enabled",
    "enforce.auth.schemes",
    "sessionRequireClientSASLAuth",
    "DigestAuthenticationProvider.enabled",
    "DigestAuthenticationProvider.digestAlg",
];
/// Beginnings of further such settings.
const OWNED_BEGINNINGS: [&str; 6] = ["server.", "group.", "weight.", "ssl.quorum.", "ssl.keyStore.", "ssl.trustStore."];
/// Flags of the Java virtual machine that people may not choose, besides properties of `ZooKeeper` that are owned settings.
const OWNED_FLAGS: [&str; 2] = ["-Djdk.net.hosts.file", "-Djava.security.properties"];
/// How `ZooKeeper` names a setting as a property of the Java virtual machine. In `zoo.cfg` it may stand as well.
const PROPERTY: &str = "zookeeper.";

/// Where things lie, and on which addresses and ports `ZooKeeper` listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Folder of the life that the volume serves: `conf` and `data` below it.
    pub life: PathBuf,
    /// Folder for what need not outlive the process.
    pub scratch: PathBuf,
    /// Address to listen on; if it is the unspecified one, all.
    pub address: IpAddr,
    /// File from which names are resolved instead of DNS, in tests.
    pub hosts: Option<PathBuf>,
}

impl Paths {
    /// Folder of the configuration, which `ZooKeeper` writes to.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.life.join("conf")
    }

    /// Folder of snapshots and logs.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.life.join("data")
    }

    /// The static configuration.
    #[must_use]
    pub fn zoo_cfg(&self) -> PathBuf {
        self.conf().join("zoo.cfg")
    }

    /// The list of servers that a life begins with.
    #[must_use]
    pub fn seed(&self) -> PathBuf {
        self.conf().join("zoo.cfg.dynamic")
    }

    /// Key, certificate and its chain of the quorum, in one file.
    #[must_use]
    pub fn quorum_identity(&self) -> PathBuf {
        self.scratch.join("quorum.pem")
    }

    /// Authorities of the quorum.
    #[must_use]
    pub fn quorum_trust(&self) -> PathBuf {
        self.scratch.join("quorum-ca.pem")
    }

    /// Key, certificate and its chain that clients see, in one file.
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

    /// Address under which the parent process reaches its own server.
    #[must_use]
    pub fn own_address(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(any) if any.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(any) if any.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            own => own,
        }
    }
}

/// Why a configuration cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A setting that people may not choose.
    #[error("the setting {0} of zoo.cfg is the operator's own: remove it from zooCfg")]
    Setting(String),
    /// A setting that would become two.
    #[error("the setting {0} of zoo.cfg has a line break in it")]
    LineBreak(String),
    /// A flag that people may not choose.
    #[error("the flag {0} of the Java virtual machine is the operator's own: remove it from jvmFlags")]
    Flag(String),
}

/// The text of `zoo.cfg`. `dynamic` is the file with the list of servers.
///
/// # Errors
/// If people chose what they may not.
pub fn zoo_cfg(places: &Paths, told: &ServerConfig, dynamic: &Path) -> Result<String, Refused> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: &str| match lines.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => value.clone_into(known),
        None => lines.push((key.to_owned(), value.to_owned())),
    };
    // What people may change comes first. Over a wide area a follower needs longer to take over a snapshot (initLimit), and
    // to answer (syncLimit), both in ticks. A leader whose voters could not reach it, since a new pod's name is not known
    // everywhere at once, would wait for them as long as for a snapshot, while they look for another one: it gives up sooner.
    for (key, value) in [
        ("tickTime", "2000"),
        ("initLimit", "30"),
        ("syncLimit", "10"),
        ("leader.maxTimeToWaitForEpoch", "3000"),
        // A connection with TLS to a server that fell silent takes a minute to close; nobody is elected meanwhile.
        ("learner.closeSocketAsync", "true"),
        ("leader.closeSocketAsync", "true"),
        ("autopurge.snapRetainCount", "3"),
        ("autopurge.purgeInterval", "12"),
        ("metricsProvider.className", "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"),
    ] {
        set(key, value);
    }
    for ZooCfgEntry { name, value } in &told.zoo_cfg {
        if owned(name) {
            return Err(Refused::Setting(name.clone()));
        }
        if name.contains(['\n', '\r', '=']) || value.contains(['\n', '\r']) {
            return Err(Refused::LineBreak(name.clone()));
        }
        set(name, value);
    }
    let all = places.address.is_unspecified();
    let text = |path: &Path| path.display().to_string();
    set("dataDir", &text(&places.data()));
    set("dynamicConfigFile", &text(dynamic));
    set("reconfigEnabled", "true");
    set("standaloneEnabled", "false");
    // An empty server may vote only with the marker beside its data: one whose disk was lost must not.
    set("db.autocreate", "false");
    // A pod's own name may resolve to an address that it does not have, as behind a gateway.
    set("quorumListenOnAllIPs", if all { "true" } else { "false" });
    set("4lw.commands.whitelist", "srvr,mntr,conf,ruok");
    set("admin.enableServer", "false");
    set("metricsProvider.httpHost", &places.address.to_string());
    set("metricsProvider.httpPort", &pod_layout::METRICS_PORT.to_string());
    let client = told.client_tls.as_ref().map(|tls| tls.mode);
    if told.quorum_tls {
        set("sslQuorum", "true");
        set("sslQuorumReloadCertFiles", "true");
        set("ssl.quorum.protocol", "TLSv1.3");
        set("ssl.quorum.enabledProtocols", "TLSv1.3");
        set("ssl.quorum.keyStore.location", &text(&places.quorum_identity()));
        set("ssl.quorum.keyStore.type", "PEM");
        set("ssl.quorum.trustStore.location", &text(&places.quorum_trust()));
        set("ssl.quorum.trustStore.type", "PEM");
        // The authority is the credential: one identity serves the whole ensemble.
        set("ssl.quorum.hostnameVerification", "false");
    }
    if let Some(mode) = client {
        set("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory");
        set("secureClientPort", &pod_layout::SECURE_CLIENT_PORT.to_string());
        set("secureClientPortAddress", &places.address.to_string());
        set("client.certReload", "true");
        set("ssl.clientAuth", client_certificates(told));
        set("client.portUnification", if mode == ClientTlsMode::Optional { "true" } else { "false" });
        set("ssl.keyStore.location", &text(&places.client_identity()));
        set("ssl.keyStore.type", "PEM");
        set("ssl.trustStore.location", &text(&places.client_trust()));
        set("ssl.trustStore.type", "PEM");
    }
    Ok(lines.into_iter().fold(String::new(), |mut all, (key, value)| {
        let _ = writeln!(all, "{key}={value}");
        all
    }))
}

/// The word of `ZooKeeper` for whether clients must show certificates.
fn client_certificates(told: &ServerConfig) -> &'static str {
    match told.client_tls.as_ref().and_then(|tls| tls.certificates) {
        None | Some(ClientCertificates::Required) => "need",
        Some(ClientCertificates::Optional) => "want",
        Some(ClientCertificates::Ignored) => "none",
    }
}

fn owned(name: &str) -> bool {
    let name = name.trim_start_matches(PROPERTY);
    OWNED.contains(&name) || OWNED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The heap in bytes for a memory limit: what is left after a quarter, at least 256 MiB, for all else that a virtual machine
/// needs; at least 64 MiB.
#[must_use]
pub fn heap(limit: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    limit.saturating_sub((limit / 4).max(256 * MIB)).max(64 * MIB)
}

/// Flags of the Java virtual machine that everybody may see, in order: people's own first, so that they cannot undo ours.
///
/// # Errors
/// If people chose what they may not.
pub fn jvm_flags(places: &Paths, told: &ServerConfig) -> Result<Vec<String>, Refused> {
    let mut flags = Vec::new();
    for flag in &told.jvm_flags {
        if flag.contains(['\n', '\r'])
            || OWNED_FLAGS.iter().any(|owned| flag.starts_with(owned))
            || property(flag).is_some_and(owned)
            || flag.starts_with('@')
        {
            return Err(Refused::Flag(flag.clone()));
        }
        flags.push(flag.clone());
    }
    let sized = |flag: &String| flag.starts_with("-Xmx") || flag.starts_with("-XX:MaxRAMPercentage");
    if let Some(limit) = told.memory_limit
        && !flags.iter().any(sized)
    {
        flags.push(format!("-Xmx{}m", heap(limit) >> 20));
    }
    flags.push("-XX:+ExitOnOutOfMemoryError".to_owned());
    flags.push(format!("-Djava.security.properties={}", places.security_properties().display()));
    if let Some(hosts) = &places.hosts {
        flags.push(format!("-Djdk.net.hosts.file={}", hosts.display()));
    }
    Ok(flags)
}

/// The property of `ZooKeeper` that a flag sets.
fn property(flag: &str) -> Option<&str> {
    let name = flag.strip_prefix("-D")?.strip_prefix(PROPERTY)?;
    Some(name.split_once('=').map_or(name, |(name, _)| name))
}

/// Security properties: a name is asked for again soon, since a pod that was replaced has another address.
pub const SECURITY_PROPERTIES: &str = "networkaddress.cache.ttl=5\nnetworkaddress.cache.negative.ttl=1\n";

/// How `ZooKeeper` logs if its image does not say: to standard output.
pub const LOGBACK: &str = r"<configuration>
  <appender name='CONSOLE' class='ch.qos.logback.core.ConsoleAppender'>
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level='INFO'><appender-ref ref='CONSOLE'/></root>
</configuration>
";

/// Where a server takes plain connections of clients. `ZooKeeper` keeps that with the list of servers, and takes no server
/// without it into its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// On all addresses.
    Everywhere,
    /// Within its pod only: clients must encrypt, but the parent process still needs a session.
    Pod,
    /// On the address of its name, where several servers share a machine.
    Host,
}

impl Plain {
    /// What is wanted of the servers that are told this.
    #[must_use]
    pub fn of(places: &Paths, told: &ServerConfig) -> Self {
        if !places.address.is_unspecified() {
            Self::Host
        } else if told.client_tls.as_ref().is_some_and(|tls| tls.mode == ClientTlsMode::Required) {
            Self::Pod
        } else {
            Self::Everywhere
        }
    }

    fn address(self, host: &str) -> &str {
        match self {
            Self::Everywhere => "0.0.0.0",
            Self::Pod => "127.0.0.1",
            Self::Host => host,
        }
    }
}

/// The line of a server in `ZooKeeper`'s dynamic configuration.
#[must_use]
pub fn line(server: &ConfiguredServer, plain: Plain) -> String {
    let role = match server.role {
        Role::Voter => "participant",
        Role::Observer => "observer",
    };
    format!(
        "server.{}={}:{}:{}:{role};{}:{}",
        server.id,
        server.host,
        pod_layout::QUORUM_PORT,
        pod_layout::ELECTION_PORT,
        plain.address(&server.host),
        pod_layout::CLIENT_PORT
    )
}

/// The dynamic configuration that a server is seeded with. It has no version, so that any that is alive is newer.
#[must_use]
pub fn seed(servers: &[ConfiguredServer], plain: Plain) -> String {
    servers.iter().fold(String::new(), |mut text, server| {
        let _ = writeln!(text, "{}", line(server, plain));
        text
    })
}

/// A dynamic configuration in which the server `id` takes plain connections as wanted; `None` if it does already, or is not
/// in it. That changes when encryption towards clients becomes required, or no longer is.
#[must_use]
pub fn readdressed(text: &str, id: i32, plain: Plain) -> Option<String> {
    let beginning = format!("server.{id}=");
    let known = parse(text)?.servers.into_iter().find(|server| server.id == id)?;
    let wanted = line(&known, plain);
    if text.lines().any(|line| line.trim() == wanted) {
        return None;
    }
    Some(text.lines().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "{}", if line.trim().starts_with(&beginning) { &wanted } else { line });
        all
    }))
}

/// Reads a dynamic configuration: of a file, or as `ZooKeeper` answers it. `None` if it is none.
#[must_use]
pub fn parse(text: &str) -> Option<Configuration> {
    let mut read = Configuration::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=')?;
        if key == "version" {
            read.version = i64::from_str_radix(value.trim(), 16).ok()?;
        } else if let Some(id) = key.strip_prefix("server.") {
            read.servers.push(server(id.trim().parse().ok()?, value.trim())?);
        }
    }
    read.servers.sort();
    (!read.servers.is_empty()).then_some(read)
}

/// `host:2888:3888:role;...`, where the host may be an address of IPv6 in brackets.
fn server(id: i32, value: &str) -> Option<ConfiguredServer> {
    let quorum = value.split(';').next()?;
    // Of several addresses of one server the first is its name.
    let first = quorum.split('|').next()?;
    let (host, rest) = match first.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:")?,
        None => first.split_once(':')?,
    };
    let role = if quorum.ends_with(":observer") { Role::Observer } else { Role::Voter };
    (rest.split(':').count() >= 2).then(|| ConfiguredServer { id, host: host.to_owned(), role })
}

/// The settings that `ZooKeeper`'s last lines speak of: it names a value that it does not understand, seldom the setting.
#[must_use]
pub fn blamed(settings: &[ZooCfgEntry], lines: &str) -> Option<String> {
    let word = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
    let names = |entry: &ZooCfgEntry| lines.split(|c| !word(c)).any(|part| part.trim_matches('.') == entry.name);
    let quotes = |entry: &ZooCfgEntry| lines.contains(&format!("\"{}\"", entry.value));
    let blamed = settings.iter().filter(|entry| names(entry) || quotes(entry));
    let told: Vec<String> = blamed.map(|entry| format!("zooCfg {} = \"{}\"", entry.name, entry.value)).collect();
    (!told.is_empty()).then(|| told.join(" and "))
}
