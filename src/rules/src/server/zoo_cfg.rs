//! The static configuration of `ZooKeeper`, `zoo.cfg`. Pure. The servers are in the dynamic configuration.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::server::{credentials::name_of, paths::Paths};
use mczk_api::{
    contract::{control_api::ServerConfig, pod_layout, settings},
    pod::ZooCfgEntry,
    tls::{ClientCertificates, ClientTls, ClientTlsMode},
};

/// Settings that users may override.
///
/// Over a wide area a follower needs more ticks to copy a snapshot (`initLimit`). The others notice a leader that falls silent
/// after `syncLimit`, as in `ZooKeeper`'s own sample: a follower that answers so late would only delay writes. The name of a new
/// pod does not resolve everywhere at once, so voters may not reach a new leader. They then search for another one,
/// while the leader waits for them as long as for a snapshot: `leader.maxTimeToWaitForEpoch` shortens this. A TLS connection
/// to a silent server takes a minute to close, which must not delay an election: `closeSocketAsync`. A silent connection to the
/// election port must not delay one either: `quorumCnxnTimeoutMs`, by default `syncLimit`. Volumes fill up in less than twelve
/// hours: `autopurge.purgeInterval`, in hours. Connections to election ports are idle between elections, and a firewall may forget
/// them: `tcpKeepAlive`, at the intervals of `pod_layout::KEEPALIVE`.
const DEFAULTS: [(&str, &str); 11] = [
    ("tickTime", "2000"),
    ("initLimit", "30"),
    ("syncLimit", "5"),
    ("leader.maxTimeToWaitForEpoch", "3000"),
    ("learner.closeSocketAsync", "true"),
    ("leader.closeSocketAsync", "true"),
    ("autopurge.snapRetainCount", "3"),
    ("autopurge.purgeInterval", "1"),
    ("quorumCnxnTimeoutMs", "3000"),
    ("tcpKeepAlive", "true"),
    ("metricsProvider.className", "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"),
];

/// A setting or flag of a user that mczk refuses. It holds no value, which may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// A setting that users may not choose, or a value that `ZooKeeper` would not take: the setting, and what to do instead.
    #[error("zooCfg {0} is refused: {1}")]
    Setting(String, String),
    /// A setting that would become two lines, or join the next one.
    #[error("the setting {0} of zoo.cfg contains a line break, or ends with a backslash: remove it from zooCfg")]
    LineBreak(String),
    /// A name that `zoo.cfg` would read as another one.
    #[error(
        "the name of a setting of zoo.cfg that begins with {0:?} has other characters than letters, digits, '.', '_' and '-': remove it from zooCfg"
    )]
    Name(String),
    /// A flag in a field or a variable, without its value, and what to do instead.
    #[error("{0} {1} is refused: {2}")]
    Flag(&'static str, String, String),
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
            let _ = writeln!(text, "{key}={}", escaped(&value));
            text
        })
    }
}

/// A value as Java's properties read it back: they take a backslash for an escape, and bytes for Latin-1.
fn escaped(value: &str) -> String {
    value.encode_utf16().fold(String::new(), |mut text, unit| {
        match u8::try_from(unit) {
            Ok(b'\\') => text.push_str(r"\\"),
            Ok(ascii @ b' '..=b'~') => text.push(char::from(ascii)),
            _ => drop(write!(text, "\\u{unit:04x}")),
        }
        text
    })
}

/// Time in which a follower has to copy a snapshot: `initLimit` ticks, in seconds.
#[must_use]
pub(crate) fn copy_limit(settings: &[ZooCfgEntry]) -> f64 {
    let number = |wanted: &str| effective(settings, wanted).and_then(|value| value.parse::<f64>().ok()).unwrap_or(1.0);
    number("initLimit") * number("tickTime") / 1000.0
}

/// Time limit of an observation of a server by its parent process.
pub const OBSERVE_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest round trip to the leader, in milliseconds, with which a server is ever seen to serve: the first observation of a
/// follower opens a session, protects two nodes and reads. That takes seven round trips. `ZooKeeper` itself waits at least as long:
/// `syncLimit` and `initLimit` ticks. A user may choose no tick below 500 ms.
pub(crate) const LONGEST_ROUND_TRIP: i64 = 500;
const _: () = assert!(8 * LONGEST_ROUND_TRIP.unsigned_abs() as u128 <= OBSERVE_TIMEOUT.as_millis());

/// True if `ZooKeeper` closes connections above a limit of all clients together.
#[must_use]
pub fn limits_connections(settings: &[ZooCfgEntry]) -> bool {
    let is_limit = |value: &str| value.trim().parse::<i64>().is_ok_and(|limit| limit > 0);
    ["maxCnxns", "netty.server.outstandingHandshake.limit"].iter().any(|wanted| {
        settings.iter().any(|entry| entry.name.trim_start_matches("zookeeper.") == *wanted && is_limit(&entry.value))
    })
}

/// True if a rule of the user decides which certificates of clients are good, beside their authority and its revocations.
#[must_use]
pub fn judges_clients(settings: &[ZooCfgEntry]) -> bool {
    const RULES: [&str; 4] =
        ["authProvider.", "ssl.authProvider", "ssl.clientHostnameVerification", "X509AuthenticationProvider."];
    let judges = |name: &str| RULES.iter().any(|rule| name.starts_with(rule));
    settings.iter().any(|entry| judges(entry.name.trim_start_matches("zookeeper.")))
}

/// The value with which a server runs, if a user or mczk sets one.
pub(crate) fn effective<'a>(settings: &'a [ZooCfgEntry], wanted: &str) -> Option<&'a str> {
    let own = settings.iter().rfind(|entry| entry.name == wanted).map(|entry| entry.value.trim());
    own.or_else(|| DEFAULTS.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value))
}

/// The text of `zoo.cfg`. `dynamic` is the file of the dynamic configuration.
///
/// # Errors
/// If a user chose a setting that mczk refuses.
pub fn zoo_cfg(paths: &Paths, config: &ServerConfig, dynamic: &Path) -> Result<String, InvalidSetting> {
    let mut lines = CfgLines(Vec::new());
    for (key, value) in DEFAULTS {
        lines.set(key, value);
    }
    for ZooCfgEntry { name, value } in &config.zoo_cfg {
        // Java's properties end a name at a space or a colon too, and have escapes.
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            return Err(InvalidSetting::Name(name_of(name)));
        }
        if value.contains(['\n', '\r']) || value.ends_with('\\') {
            return Err(InvalidSetting::LineBreak(name.clone()));
        }
        if let Some(why) = settings::refusal_in_zoo_cfg(name, value) {
            return Err(InvalidSetting::Setting(name.clone(), why));
        }
        // It is a flag.
        if name != settings::MAX_BUFFER {
            lines.set(name, value);
        }
    }
    if let Some(why) = settings::refusal_of_sessions(|name| effective(&config.zoo_cfg, name)) {
        return Err(InvalidSetting::Setting("minSessionTimeout".to_owned(), why));
    }
    set_owned(&mut lines, paths, dynamic);
    if config.quorum_tls {
        set_quorum_tls(&mut lines, paths);
    }
    if let Some(tls) = &config.client_tls {
        set_client_tls(&mut lines, paths, tls);
    }
    Ok(lines.text())
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
    settings.set("admin.enableServer", "true");
    settings.set("admin.serverAddress", &paths.own_address().to_string());
    settings.set("admin.serverPort", &pod_layout::ADMIN_PORT.to_string());
    settings.set("admin.snapshot.enabled", "false");
    settings.set("admin.restore.enabled", "false");
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
