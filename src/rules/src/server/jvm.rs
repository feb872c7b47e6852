//! Flags and files of the Java virtual machine. Pure.

use crate::server::{
    credentials::name_of,
    paths::Paths,
    zoo_cfg::{InvalidSetting, PROPERTY_PREFIX, is_owned},
};
use mczk_api::contract::control_api::ServerConfig;

/// Flags that users may not choose. In addition, users may not choose owned settings as properties.
const OWNED_FLAGS: [&str; 2] = ["-Djdk.net.hosts.file", "-Djava.security.properties"];

/// Security properties: Java resolves a name again soon, since a replaced pod has another address.
///
/// It remembers longer that a name has no answer. `ZooKeeper` resolves the names of all servers for every notification of an
/// election. With a cluster that is gone with its DNS server, each notification would take seconds for each of its servers.
pub const SECURITY_PROPERTIES: &str = "networkaddress.cache.ttl=5\nnetworkaddress.cache.negative.ttl=10\n";

/// Environment variable with options of the C library's resolver, which Java uses.
pub const RESOLVER_OPTIONS: &str = "RES_OPTIONS";
/// One attempt of one second for each name server, in place of the pod's two: an election waits for each name without an
/// answer. `ZooKeeper` tries again by itself.
pub const ONE_ATTEMPT: &str = "timeout:1 attempts:1";

/// Log configuration for an image without one: `ZooKeeper` logs to standard output.
pub const LOGBACK: &str = r"<configuration>
  <appender name='CONSOLE' class='ch.qos.logback.core.ConsoleAppender'>
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level='INFO'><appender-ref ref='CONSOLE'/></root>
</configuration>
";

/// Lets `ZooKeeper` start with logs alone.
pub const BEGIN_WITH_LOG: &str = "-Dzookeeper.snapshot.trust.empty=true";

/// The heap in bytes for a memory limit. A quarter of the limit, at least 256 MiB, remains for the rest of the virtual
/// machine. The heap has at least 64 MiB.
#[must_use]
pub fn heap(limit: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    limit.saturating_sub((limit / 4).max(256 * MIB)).max(64 * MIB)
}

/// Public flags, in order. The users' flags come first, so that they cannot override those of mczk.
///
/// # Errors
/// If a user chose a flag that mczk owns.
pub fn jvm_flags(paths: &Paths, config: &ServerConfig) -> Result<Vec<String>, InvalidSetting> {
    let mut flags = Vec::new();
    for flag in &config.jvm_flags {
        if flag.contains(['\n', '\r'])
            || OWNED_FLAGS.iter().any(|owned| flag.starts_with(owned))
            || property(flag).is_some_and(is_owned)
            || flag.starts_with('@')
        {
            return Err(InvalidSetting::OwnedFlag(name_of(flag)));
        }
        flags.push(flag.clone());
    }
    let sets_heap = |flag: &String| flag.starts_with("-Xmx") || flag.starts_with("-XX:MaxRAMPercentage");
    if let Some(limit) = config.memory_limit
        && !flags.iter().any(sets_heap)
    {
        flags.push(format!("-Xmx{}m", heap(limit) >> 20));
    }
    flags.push("-XX:+ExitOnOutOfMemoryError".to_owned());
    flags.push(format!("-Djava.security.properties={}", paths.security_properties().display()));
    if let Some(hosts) = &paths.hosts {
        flags.push(format!("-Djdk.net.hosts.file={}", hosts.display()));
    }
    Ok(flags)
}

/// Name of the `ZooKeeper` property that a flag sets.
fn property(flag: &str) -> Option<&str> {
    let name = flag.strip_prefix("-D")?.strip_prefix(PROPERTY_PREFIX)?;
    Some(name.split_once('=').map_or(name, |(name, _)| name))
}
