//! Flags and files of the Java virtual machine. Pure.

use crate::server::{credentials::name_of, paths::Paths, zoo_cfg::InvalidSetting};
use mczk_api::contract::{
    control_api::ServerConfig,
    settings::{MAX_BUFFER, refusal_of_flag},
};

/// Variables with flags that Java reads by itself. Only the image can set them.
pub const FLAG_VARIABLES: [&str; 3] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

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

/// Log configuration, whatever the image has: from these lines the parent process learns that a write failed, and another layout
/// would hide it.
pub const LOGBACK: &str = r"<configuration>
  <appender name='CONSOLE' class='ch.qos.logback.core.ConsoleAppender'>
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level='INFO'><appender-ref ref='CONSOLE'/></root>
</configuration>
";

/// Lets `ZooKeeper` start with logs alone.
pub const BEGIN_WITH_LOG: &str = "-Dzookeeper.snapshot.trust.empty=true";

/// How flags of the size of the heap begin: of two of them, the last one counts.
const SETS_HEAP: [&str; 4] = ["-Xmx", "-mx", "-XX:MaxHeapSize", "-XX:MaxRAM"];

/// The heap in bytes for a memory limit. A quarter of the limit, at least 256 MiB, remains for the rest of the virtual
/// machine. The heap has at least 64 MiB.
#[must_use]
pub fn heap(limit: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    limit.saturating_sub((limit / 4).max(256 * MIB)).max(64 * MIB)
}

/// The memory limit for the heap: the declared one, or that of the container if that is lower. An autoscaler or an admission policy
/// changes pods, and the kernel ends a server whose heap grows beyond the real limit. `real` is the text of `memory.max`.
#[must_use]
pub fn memory_limit(declared: Option<u64>, real: Option<&str>) -> Option<u64> {
    let real: Option<u64> = real.and_then(|text| text.trim().parse().ok());
    declared.map(|declared| real.map_or(declared, |real| real.min(declared)))
}

/// Public flags, in order. The users' flags come first, so that they cannot override those of mczk.
///
/// # Errors
/// If a user chose a flag that mczk refuses.
pub fn jvm_flags(paths: &Paths, config: &ServerConfig) -> Result<Vec<String>, InvalidSetting> {
    check("jvmFlags", &config.jvm_flags)?;
    let mut flags = config.jvm_flags.clone();
    if let Some(limit) = config.zoo_cfg.iter().find(|entry| entry.name == MAX_BUFFER) {
        flags.push(format!("-D{MAX_BUFFER}={}", limit.value.trim()));
    }
    let sets_heap = |flag: &String| SETS_HEAP.iter().any(|prefix| flag.starts_with(prefix));
    if let Some(limit) = config.memory_limit
        && !flags.iter().any(sets_heap)
    {
        flags.push(format!("-Xmx{}m", heap(limit) >> 20));
    }
    flags.push("-XX:+ExitOnOutOfMemoryError".to_owned());
    flags.push(format!("-Djava.security.properties={}", paths.security_properties().display()));
    flags.push(format!("-Dlogback.configurationFile={}", paths.logback().display()));
    if let Some(hosts) = &paths.hosts {
        flags.push(format!("-Djdk.net.hosts.file={}", hosts.display()));
    }
    Ok(flags)
}

/// Checks the flags in a variable of the environment, where values may have quotes and spaces.
///
/// # Errors
/// If mczk refuses one of them.
pub fn check_variable(name: &'static str, value: &str) -> Result<(), InvalidSetting> {
    let plain = value.replace(['"', '\''], "");
    let flags = plain.split_whitespace().filter(|word| word.starts_with(['-', '@'])).map(ToOwned::to_owned);
    check(name, &flags.collect::<Vec<_>>())
}

fn check(place: &'static str, flags: &[String]) -> Result<(), InvalidSetting> {
    for flag in flags {
        if let Some(why) = refusal_of_flag(flag) {
            let (prefix, option) = flag.strip_prefix("-XX:").map_or(("", flag.as_str()), |option| ("-XX:", option));
            return Err(InvalidSetting::Flag(place, format!("{prefix}{}", name_of(option)), why));
        }
    }
    Ok(())
}
