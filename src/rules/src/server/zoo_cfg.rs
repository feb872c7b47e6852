//! The static configuration of `ZooKeeper`, `zoo.cfg`. Pure. The servers are in the dynamic configuration.

use std::fmt::Write as _;
use std::path::Path;

use crate::server::{credentials::name_of, paths::Paths};
use mczk_api::{
    contract::{control_api::ServerConfig, pod_layout},
    pod::ZooCfgEntry,
    tls::{ClientCertificates, ClientTls, ClientTlsMode},
};

/// Settings that users may not choose, since the ensemble's safety or the parent process depends on them:
///
/// - Without `forceSync`, a power loss may lose acknowledged writes.
/// - Without `syncEnabled`, a server that gets a vote has no log of what it acknowledges.
/// - The parent process reads the names of snapshots, which compression changes.
/// - An oracle makes one of two servers a quorum.
/// - A leader that serves no clients, and local sessions, prove no quorum.
/// - Other settings would lock the parent process out.
const OWNED: [&str; 41] = [
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
    "snapshot.compression.method",
    "syncEnabled",
    "observer.syncEnabled",
    "enforce.auth.enabled",
    "enforce.auth.schemes",
    "sessionRequireClientSASLAuth",
    "DigestAuthenticationProvider.enabled",
    "DigestAuthenticationProvider.digestAlg",
];
/// Prefixes of further owned settings.
const OWNED_PREFIXES: [&str; 6] = ["server.", "group.", "weight.", "ssl.quorum.", "ssl.keyStore.", "ssl.trustStore."];
/// Prefix of a setting's name as a property of the Java virtual machine. `zoo.cfg` accepts it too.
pub(super) const PROPERTY_PREFIX: &str = "zookeeper.";

/// Settings that users may override.
///
/// Over a wide area a follower needs more ticks to copy a snapshot (`initLimit`). The others notice a leader that falls silent
/// after `syncLimit`, as in `ZooKeeper`'s own sample: a follower that answers so late would only delay writes. The name of a new
/// pod does not resolve everywhere at once, so voters may not reach a new leader. They then search for another one,
/// while the leader waits for them as long as for a snapshot: `leader.maxTimeToWaitForEpoch` shortens this. A TLS connection
/// to a silent server takes a minute to close, which must not delay an election: `closeSocketAsync`. A silent connection to the
/// election port must not delay one either: `quorumCnxnTimeoutMs`, by default `syncLimit`. Volumes fill up in less than twelve
/// hours: `autopurge.purgeInterval`, in hours.
const DEFAULTS: [(&str, &str); 10] = [
    ("tickTime", "2000"),
    ("initLimit", "30"),
    ("syncLimit", "5"),
    ("leader.maxTimeToWaitForEpoch", "3000"),
    ("learner.closeSocketAsync", "true"),
    ("leader.closeSocketAsync", "true"),
    ("autopurge.snapRetainCount", "3"),
    ("autopurge.purgeInterval", "1"),
    ("quorumCnxnTimeoutMs", "3000"),
    ("metricsProvider.className", "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"),
];

/// A setting or flag of a user that mczk refuses. It holds no value, which may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// A setting that users may not choose.
    #[error("the setting {0} of zoo.cfg is the operator's own: remove it from zooCfg")]
    OwnedSetting(String),
    /// A setting that would become two lines, or join the next one.
    #[error("the setting {0} of zoo.cfg contains a line break, or ends with a backslash: remove it from zooCfg")]
    LineBreak(String),
    /// A name that `zoo.cfg` would read as another one.
    #[error(
        "the name of a setting of zoo.cfg that begins with {0:?} has other characters than letters, digits, '.', '_' and '-': remove it from zooCfg"
    )]
    Name(String),
    /// A flag that users may not choose.
    #[error("the flag {0} of the Java virtual machine is the operator's own: remove it from jvmFlags")]
    OwnedFlag(String),
}

/// Settings in the order of their first definition.
struct CfgLines(Vec<(String, String)>);

impl CfgLines {
    fn set(&mut self, key: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, current)) => value.clone_into(current),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
    }

    fn set_path(&mut self, key: &str, path: &Path) {
        self.set(key, &path.display().to_string());
    }

    fn set_bool(&mut self, key: &str, value: bool) {
        self.set(key, if value { "true" } else { "false" });
    }

    fn text(self) -> String {
        self.0.into_iter().fold(String::new(), |mut text, (key, value)| {
            let _ = writeln!(text, "{key}={value}");
            text
        })
    }
}

/// The text of `zoo.cfg`. `dynamic` is the file of the dynamic configuration.
///
/// # Errors
/// If a user chose a setting that mczk owns or that has a line break.
pub fn zoo_cfg(paths: &Paths, config: &ServerConfig, dynamic: &Path) -> Result<String, InvalidSetting> {
    let mut settings = CfgLines(Vec::new());
    for (key, value) in DEFAULTS {
        settings.set(key, value);
    }
    for ZooCfgEntry { name, value } in &config.zoo_cfg {
        if is_owned(name) {
            return Err(InvalidSetting::OwnedSetting(name_of(name)));
        }
        // Java's properties end a name at a space or a colon too, and have escapes.
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            return Err(InvalidSetting::Name(name_of(name)));
        }
        if value.contains(['\n', '\r']) || value.ends_with('\\') {
            return Err(InvalidSetting::LineBreak(name.clone()));
        }
        settings.set(name, value);
    }
    set_owned(&mut settings, paths, dynamic);
    if config.quorum_tls {
        set_quorum_tls(&mut settings, paths);
    }
    if let Some(tls) = &config.client_tls {
        set_client_tls(&mut settings, paths, tls);
    }
    Ok(settings.text())
}

fn set_owned(settings: &mut CfgLines, paths: &Paths, dynamic: &Path) {
    settings.set_path("dataDir", &paths.data());
    settings.set_path("dynamicConfigFile", dynamic);
    settings.set("reconfigEnabled", "true");
    settings.set("standaloneEnabled", "false");
    // An empty server may vote only if the marker is beside its data. A server that lost its disk must not vote.
    settings.set("db.autocreate", "false");
    // A pod's own name may resolve to an address that the pod does not have, for example behind a gateway.
    settings.set_bool("quorumListenOnAllIPs", paths.address.is_unspecified());
    settings.set("4lw.commands.whitelist", "srvr,mntr,conf,ruok");
    settings.set("admin.enableServer", "false");
    settings.set("metricsProvider.httpHost", &paths.zookeeper_address().to_string());
    settings.set("metricsProvider.httpPort", &pod_layout::METRICS_PORT.to_string());
}

fn set_quorum_tls(settings: &mut CfgLines, paths: &Paths) {
    settings.set("sslQuorum", "true");
    settings.set("sslQuorumReloadCertFiles", "true");
    settings.set("ssl.quorum.protocol", "TLSv1.3");
    settings.set("ssl.quorum.enabledProtocols", "TLSv1.3");
    settings.set_path("ssl.quorum.keyStore.location", &paths.quorum_identity());
    settings.set("ssl.quorum.keyStore.type", "PEM");
    settings.set_path("ssl.quorum.trustStore.location", &paths.quorum_trust());
    settings.set("ssl.quorum.trustStore.type", "PEM");
    // The authority is the credential: one identity serves the whole ensemble.
    settings.set("ssl.quorum.hostnameVerification", "false");
}

fn set_client_tls(settings: &mut CfgLines, paths: &Paths, tls: &ClientTls) {
    settings.set("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory");
    settings.set("secureClientPort", &pod_layout::SECURE_CLIENT_PORT.to_string());
    settings.set("secureClientPortAddress", &paths.zookeeper_address().to_string());
    settings.set("client.certReload", "true");
    settings.set("ssl.clientAuth", client_auth(tls.certificates));
    settings.set_bool("client.portUnification", tls.mode == ClientTlsMode::Optional);
    settings.set_path("ssl.keyStore.location", &paths.client_identity());
    settings.set("ssl.keyStore.type", "PEM");
    settings.set_path("ssl.trustStore.location", &paths.client_trust());
    settings.set("ssl.trustStore.type", "PEM");
}

const fn client_auth(certificates: Option<ClientCertificates>) -> &'static str {
    match certificates {
        None | Some(ClientCertificates::Required) => "need",
        Some(ClientCertificates::Optional) => "want",
        Some(ClientCertificates::Ignored) => "none",
    }
}

/// True if mczk owns the setting.
pub(super) fn is_owned(name: &str) -> bool {
    let name = name.trim_start_matches(PROPERTY_PREFIX);
    OWNED.contains(&name) || OWNED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The names of the users' settings that `ZooKeeper`'s last lines mention. `ZooKeeper` names a value that it cannot parse,
/// seldom the setting.
#[must_use]
pub fn mentioned_settings(settings: &[ZooCfgEntry], lines: &str) -> Option<String> {
    let in_word = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
    let has_name = |entry: &ZooCfgEntry| lines.split(|c| !in_word(c)).any(|word| word.trim_matches('.') == entry.name);
    let has_value = |entry: &ZooCfgEntry| lines.contains(&format!("\"{}\"", entry.value));
    let mentioned: Vec<String> = settings
        .iter()
        .filter(|entry| has_name(entry) || has_value(entry))
        .map(|entry| format!("zooCfg {}", entry.name))
        .collect();
    (!mentioned.is_empty()).then(|| mentioned.join(" and "))
}
