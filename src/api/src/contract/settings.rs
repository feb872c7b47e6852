//! Every setting of `ZooKeeper` 3.9, in one table: which ones users may choose, which of them are equal in all clusters, and why
//! mczk refuses the others. The rules of the definitions, `mczk server` and the reference all read it.
//!
//! A name that the table lacks is refused in `zooCfg`, because `ZooKeeper` ignores a misspelt one without a word. A property of a
//! later version, or of a plug-in, remains possible in `jvmFlags`.

/// Prefix of a setting's name as a property of the Java virtual machine.
const PROPERTY_PREFIX: &str = "zookeeper.";
/// The setting that limits the size of a request and of a znode. `ZooKeeper` reads it as a property without the prefix.
pub const MAX_BUFFER: &str = "jute.maxbuffer";
/// Options that start another program or none, read further options from a file, or keep a failed Java from ending at once.
pub(crate) const REFUSED_OPTIONS: &str = "-cp -classpath --class-path -jar -m --module -version --version -fullversion \
    --full-version -help --help -h -? -X --help-extra --dry-run --list-modules --validate-modules -d --describe-module \
    --source -XX:Flags -XX:VMOptionsFile -XX:OnOutOfMemoryError -XX:OnError -XX:-ExitOnOutOfMemoryError";
/// What to do with such a flag.
pub(crate) const NO_FLAG: &str = "a flag is one option with its value, as -XX:NAME=VALUE or --add-opens=VALUE. Files of flags, other programs, and \
                           commands that run when Java fails are refused: remove it";

/// What to do with a flag that sets a setting of `zoo.cfg`.
pub(crate) const BELONGS_IN_ZOO_CFG: &str = "a flag is the wrong place: set it in template.zooCfg, by its name alone";
/// What to do with a property of Java in another form.
pub(crate) const BELONGS_IN_FLAGS: &str = "Java reads it by its name alone: set it in jvmFlags, as -DNAME=VALUE";
/// What to do with a name that the table lacks.
pub(crate) const UNKNOWN: &str = "no setting of ZooKeeper 3.9 has this name: correct it. Set a property of a plug-in or of a later version in \
                                  jvmFlags, as -Dzookeeper.NAME=VALUE";
/// What to do with a setting of one cluster that has to be equal in all.
pub(crate) const EQUAL: &str = "this setting must be equal in all clusters: set it in template.zooCfg";

/// Who may choose a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingUse {
    /// Users, for each cluster.
    Cluster,
    /// Users, for all clusters at once.
    Ensemble,
    /// mczk alone, if anyone.
    Refused,
}

/// Where users set a setting. It has one place, because `zoo.cfg` would win over a flag without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingField {
    /// In `zooCfg`.
    ZooCfg,
    /// In `jvmFlags`, as a property without a prefix, which `zoo.cfg` cannot set.
    Flag,
}

/// What a value may be. `ZooKeeper` takes the default in place of most values that it cannot read, without a word. Others it
/// reads later, for example when it becomes a leader or a queue is full: with a wrong one it then fails, on one server after
/// another. So each bound keeps out the values with which a server could not lead, serve or recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A whole number, not below the first one and not above the second.
    Number(i32, i32),
    /// A number above 0, not above 1.
    Share,
    /// `true` or `false`.
    Boolean,
    /// `true` or `false`, and this one by default. It says how `ZooKeeper` reads what it has stored, so it never changes.
    Fixed(bool),
    /// `true` or `false`. What clients stored while it was `true` would be lost if it were `false` again.
    OnceTrue,
    /// A whole number, not below this one; or 0, for no limit.
    LimitOrNone(i32),
    /// Any text.
    Text,
}

/// Settings that are alike.
#[derive(Debug)]
pub struct SettingGroup {
    /// Who may choose them.
    pub allowed: SettingUse,
    /// Where users set them.
    pub field: SettingField,
    /// What their values may be.
    pub value: SettingValue,
    /// Their names, separated by spaces. A name that ends with a dot stands for all that begin with it.
    names: &'static str,
    /// Why they are allowed, or what to do instead.
    pub why: &'static str,
}

use SettingField::{Flag, ZooCfg};
use SettingUse::{Cluster, Ensemble, Refused};
use SettingValue::{Boolean, Fixed, LimitOrNone, Number, OnceTrue, Share, Text};

/// Whole numbers of which the largest does no harm. Where `ZooKeeper` has a value for its default, such as -1, users leave the
/// setting out instead.
const FROM_0: SettingValue = Number(0, i32::MAX);
const FROM_1: SettingValue = Number(1, i32::MAX);
/// Seconds and minutes in milliseconds.
const SECOND: i32 = 1_000;
const MINUTE: i32 = 60 * SECOND;
/// Most threads of one kind, and most bytes of a buffer of which each thread or answer has one.
const THREADS: i32 = 256;
const BUFFER: i32 = 1 << 20;
/// Most elements of a queue or a cache. `ZooKeeper` reserves the memory of some at once.
const ELEMENTS: i32 = 100_000;
const NO_QUORUM: &str = "a session would no longer prove that a quorum serves: remove it";
/// The longest session lasts 20 ticks by default. It must last as long as that of the restart lock, `control_api::LOCK_SESSION`.
const AGREE: &str = "servers, and clients that change their server, agree on it";
const SAME_ACCESS: &str = "clients have the same access at every server";
const OWN_LOAD: &str = "it concerns the load of one server, and what it reports of itself";
const OWN_NETWORK: &str = "it concerns the connections of one server. mczk needs some of them itself";
const OWN_DISK: &str = "it concerns the files of one server. No acknowledged write depends on it";

/// Rows: who may choose the settings, where they stand, their values, their names, and why.
macro_rules! groups {
    ($($allowed:ident $field:ident $value:expr, $names:expr => $why:expr;)*) => {
        [$(SettingGroup { allowed: $allowed, field: $field, value: $value, names: $names, why: $why },)*]
    };
}

/// The table. The first group that has a name counts.
pub const SETTINGS: &[SettingGroup] = &groups! {
    Refused ZooCfg Text, "dataDir dataLogDir clientPort clientPortAddress dynamicConfigFile reconfigEnabled \
        standaloneEnabled quorumListenOnAllIPs peerType version electionAlg server. group. weight. \
        metricsProvider.className metricsProvider.httpHost metricsProvider.httpPort 4lw.commands.whitelist \
        db.autocreate datadir.autocreate admin." =>
        "the operator manages this setting: remove it";
    Refused ZooCfg Text, "secureClientPort secureClientPortAddress serverCnxnFactory client.portUnification \
        client.certReload ssl.clientAuth ssl.keyStore. ssl.trustStore. ssl.context.supplier.class" =>
        "the operator manages TLS of clients: set tls.client, and remove this setting";
    Refused ZooCfg Text, "sslQuorum sslQuorumReloadCertFiles portUnification ssl.quorum." =>
        "the operator manages TLS between servers: set tls.quorum, and remove this setting";
    Refused ZooCfg Text, "quorum.auth. quorum.cnxn.threads.size" =>
        "servers authenticate each other by tls.quorum, and their pods have no JAAS file: remove it";
    Refused ZooCfg Text, "syncEnabled observer.syncEnabled forceSync snapshot.trust.empty snapshot.compression.method \
        test.allowDiscontinuousProposals testingonly.initialZxid" =>
        "acknowledged writes could be lost, since mczk relies on what the volume holds: remove it";
    Refused ZooCfg Text, "emulate353TTLNodes" =>
        "it is for data of ZooKeeper 3.5.3, and would keep nodes of sessions that have ended: remove it";
    Refused ZooCfg Text, "oraclePath leaderServes localSessionsEnabled localSessionsUpgradingEnabled" => NO_QUORUM;
    Refused Flag Text, "readonlymode.enabled" => NO_QUORUM;
    Refused ZooCfg Text, "skipACL enforce.auth.enabled enforce.auth.schemes sessionRequireClientSASLAuth \
        DigestAuthenticationProvider." =>
        "mczk signs in with a digest of its own, which this would weaken or lock out: remove it";
    Refused ZooCfg Text, "SASLAuthenticationProvider.superPassword" =>
        "a spec is no place for a password: name a user with superUser or X509AuthenticationProvider.superUser";
    Refused ZooCfg Text, "observerMasterPort multiAddress." =>
        "mczk gives each server one address, and opens no other port: remove it";
    Refused ZooCfg Text, "IPAuthenticationProvider.usexforwardedfor configuration controllerPort \
        observerMaster.sizeLimit client.secure clientCnxnSocket disableAutoWatchReset request.timeout sasl.client \
        sasl.client. sasl.clientconfig" => "it has no effect on a server of mczk: remove it";
    Refused ZooCfg Text, "jute.maxbuffer.extrasize" =>
        "it follows jute.maxbuffer: set jute.maxbuffer in template.zooCfg";
    Refused Flag Text, "jdk.net.hosts.file java.security.properties sun.net.inetaddr.ttl \
        sun.net.inetaddr.negative.ttl networkaddress.cache.ttl networkaddress.cache.negative.ttl" =>
        "the operator manages how Java resolves names: remove it";
    Refused Flag Text, "logback.configurationFile" =>
        "mczk reads the log on standard output, in the layout of its own logback.xml";
    // ZooKeeper multiplies the length of a tick by the limits. A server that has lost its leader waits so long.
    Ensemble ZooCfg Number(500, 10 * SECOND), "tickTime" => AGREE;
    Ensemble ZooCfg Number(1, 600), "initLimit syncLimit" => AGREE;
    Ensemble ZooCfg Number(0, 600), "connectToLearnerMasterLimit" => AGREE;
    // A lock of mczk that its holder has left lasts as long as the shortest session.
    Ensemble ZooCfg Number(0, 10 * MINUTE), "minSessionTimeout" => AGREE;
    Ensemble ZooCfg Number(10 * SECOND, i32::MAX), "maxSessionTimeout" => AGREE;
    Ensemble ZooCfg Number(0xf_ffff, i32::MAX), MAX_BUFFER =>
        "mczk makes it a flag of every server. Raise it before clients write more. If it is lower than the data \
         needs, servers do not start, and say so; their volumes stay good";
    // The part of a snapshot that follows the digest has no mark.
    Ensemble ZooCfg Fixed(true), "digest.enabled" =>
        "it cannot change after the creation: ZooKeeper could not read the snapshots that it has stored. Create a new \
         MultiClusterZooKeeper instead";
    Ensemble ZooCfg OnceTrue, "extendedTypesEnabled" =>
        "it cannot be switched off: ZooKeeper would delete all nodes with a time to live. Create them only when the \
         rollout that switches it on is complete";
    Ensemble ZooCfg Boolean, "closeSessionTxn.enabled enforceQuota enableEagerACLCheck serializeLastProcessedZxid.enabled \
        follower.skipLearnerRequestToNextProcessor forward_learner_requests_to_commit_processor_disabled" =>
        "servers apply and check the same transactions alike";
    Ensemble ZooCfg Boolean, "fips-mode allowSaslFailedClients ssl.crl ssl.ocsp ssl.hostnameVerification \
        ssl.clientHostnameVerification ssl.allowReverseDnsLookup requireKerberosConfig \
        kerberos.removeHostFromPrincipal kerberos.removeRealmFromPrincipal kerberos.canonicalizeHostNames" =>
        SAME_ACCESS;
    Ensemble ZooCfg Text, "authProvider. superUser X509AuthenticationProvider.superUser ensembleAuthName \
        letAnySaslUserDoX sasl.serverconfig security.auth_to_local ssl.protocol ssl.enabledProtocols ssl.ciphersuites \
        ssl.authProvider ssl.sslProvider kerberos.minReLoginTimeMs kinit" => SAME_ACCESS;
    Cluster Flag Text, "java.security.auth.login.config sun.security.jgss.native" => "the image has the file";
    // The parent of a server has two sessions, and a user needs one to see that.
    Cluster ZooCfg LimitOrNone(3), "maxClientCnxns maxCnxns" => OWN_NETWORK;
    Cluster ZooCfg FROM_0, "clientPortListenBacklog electionPortBindRetry \
        leader.ackLoggingFrequency netty.server.outstandingHandshake.limit" => OWN_NETWORK;
    // Only a leader reads them.
    Cluster ZooCfg FROM_1, "leader.maxConcurrentSnapSyncs leader.maxConcurrentDiffSyncs" => OWN_NETWORK;
    Cluster ZooCfg Number(SECOND, MINUTE), "cnxTimeout quorumCnxnTimeoutMs leader.maxTimeToWaitForEpoch \
        nio.sessionlessCnxnTimeout ssl.handshakeDetectionTimeoutMillis" => OWN_NETWORK;
    // A server that waits longer, or that asks without a pause, finds no leader.
    Cluster ZooCfg Number(100, 10 * SECOND), "fastleader.minNotificationInterval" => OWN_NETWORK;
    Cluster ZooCfg Number(100, MINUTE), "fastleader.maxNotificationInterval" => OWN_NETWORK;
    Cluster ZooCfg Number(10, 10 * SECOND), "leaderConnectDelayDuringRetryMs" => OWN_NETWORK;
    Cluster ZooCfg Number(0, MINUTE), "observer.reconnectDelayMs observer.election.DelayMs nio.shutdownTimeout" =>
        OWN_NETWORK;
    Cluster ZooCfg Number(1, THREADS), "nio.numSelectorThreads" => OWN_NETWORK;
    Cluster ZooCfg Number(0, THREADS), "nio.numWorkerThreads" => OWN_NETWORK;
    Cluster ZooCfg Number(0, BUFFER), "nio.directBufferBytes" => OWN_NETWORK;
    Cluster ZooCfg Number(3, i32::MAX), "autopurge.snapRetainCount" => OWN_DISK;
    Cluster ZooCfg FROM_0, "autopurge.purgeInterval txnLogSizeLimitInKb fsync.warningthresholdms" => OWN_DISK;
    // File systems limit the size of a file.
    Cluster ZooCfg Number(0, 1 << 18), "preAllocSize" => OWN_DISK;
    Cluster ZooCfg Number(2, i32::MAX), "snapCount" => OWN_DISK;
    // ZooKeeper's guide says that 0 means no limit. Its server divides by it.
    Cluster ZooCfg FROM_1, "snapSizeLimitInKb" => OWN_DISK;
    Cluster ZooCfg Number(500, ELEMENTS), "commitLogCount" => OWN_DISK;
    Cluster ZooCfg Boolean, "tcpKeepAlive clientTcpKeepAlive leader.closeSocketAsync learner.closeSocketAsync \
        learner.asyncSending netty.advancedFlowControl.enabled forceSnapshotSync \
        netty.server.earlyDropSecureConnectionHandshakes" => OWN_NETWORK;
    Cluster ZooCfg FROM_0, "jvm.pause.info-threshold.ms jvm.pause.warn-threshold.ms request_throttle_max_requests \
        connection_throttle_freeze_time maxInProcessingDeadWatchers bitHashCacheSize \
        commitProcessor.maxReadBatchSize pathStats.initialDelay" => OWN_LOAD;
    // Requests of mczk wait too.
    Cluster ZooCfg Number(SECOND, i32::MAX), "throttled_op_wait_time" => OWN_LOAD;
    Cluster ZooCfg FROM_1, "globalOutstandingLimit commitProcessor.maxCommitBatchSize largeRequestThreshold \
        pathStats.maxDepth pathStats.delay" => OWN_LOAD;
    // No larger request would pass.
    Cluster ZooCfg Number(0xf_ffff, i32::MAX), "largeRequestMaxBytes" => OWN_LOAD;
    Cluster ZooCfg Number(10, i32::MAX), "jvm.pause.sleep.time.ms" => OWN_LOAD;
    Cluster ZooCfg Number(0, THREADS), "commitProcessor.numWorkerThreads" => OWN_LOAD;
    Cluster ZooCfg Number(1, THREADS), "watcherCleanThreadsNum" => OWN_LOAD;
    Cluster ZooCfg Number(0, MINUTE), "commitProcessor.shutdownTimeout" => OWN_LOAD;
    Cluster ZooCfg Number(1, MINUTE), "request_throttler.shutdownTimeout" => OWN_LOAD;
    // Acknowledgements wait for them.
    Cluster ZooCfg Number(0, 100), "flushDelay maxWriteQueuePollTime" => OWN_LOAD;
    // With 0, the throttle waits for a signal that it can miss.
    Cluster ZooCfg Number(1, 10 * SECOND), "request_throttle_stall_time" => OWN_LOAD;
    Cluster ZooCfg Number(32, BUFFER), "intBufferStartingSizeBytes" => OWN_LOAD;
    Cluster ZooCfg Number(0, ELEMENTS), "maxResponseCacheSize maxGetChildrenResponseCacheSize \
        connection_throttle_tokens" => OWN_LOAD;
    Cluster ZooCfg Number(1, ELEMENTS), "maxBatchSize connection_throttle_fill_count watcherCleanThreshold \
        messageTracker.BufferSize pathStats.slotCapacity pathStats.topPathMax" => OWN_LOAD;
    // mczk itself needs one of these connections.
    Cluster ZooCfg Number(1, SECOND), "connection_throttle_fill_time connection_throttle_global_session_weight \
        connection_throttle_local_session_weight connection_throttle_renew_session_weight" => OWN_LOAD;
    Cluster ZooCfg Number(1, 86_400), "watcherCleanIntervalInSeconds pathStats.slotDuration" => OWN_LOAD;
    Cluster ZooCfg Share, "connection_throttle_drop_increase connection_throttle_drop_decrease \
        connection_throttle_decrease_ratio pathStats.sampleRate snapshotSizeFactor" => OWN_LOAD;
    Cluster ZooCfg Boolean, "jvm.pause.monitor request_throttle_drop_stale request_stale_latency_check \
        request_stale_connection_check connection_throttle_weight_enabled messageTracker.Enabled pathStats.enabled \
        audit.enable jmx.log4j.disable" => OWN_LOAD;
    Cluster ZooCfg Text, "watchManagerName audit.impl.class jmx.log4j.mbean metricsProvider." => OWN_LOAD;
    // Only a leader reads most of them.
    Cluster Flag Boolean, "leader.nodelay follower.nodelay" => OWN_LOAD;
    Cluster Flag Number(100, i32::MAX), "znode.container.checkIntervalMs" => OWN_LOAD;
    Cluster Flag FROM_1, "znode.container.maxPerMinute" => OWN_LOAD;
    // A negative one would delete containers before they have children.
    Cluster Flag FROM_0, "znode.container.maxNeverUsedIntervalMs" => OWN_LOAD;
};

impl SettingGroup {
    /// The names. One that ends with a dot stands for all that begin with it.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_whitespace()
    }

    fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name || (own.ends_with('.') && name.starts_with(own)))
    }

    /// Why `ZooKeeper` would not take a value as it is meant.
    #[must_use]
    fn refusal_of(&self, value: &str) -> Option<String> {
        let value = value.trim();
        let is_fine = match self.value {
            Text => true,
            Boolean | Fixed(_) | OnceTrue => ["true", "false"].iter().any(|known| value.eq_ignore_ascii_case(known)),
            Number(least, most) => whole(value).is_some_and(|number| (least..=most).contains(&number)),
            LimitOrNone(least) => whole(value).is_some_and(|number| number == 0 || number >= least),
            Share => value.parse::<f64>().is_ok_and(|share| share > 0.0 && share <= 1.0),
        };
        self.value.must().filter(|_| !is_fine)
    }
}

impl SettingValue {
    /// What a value must be; `None` if it may be any text.
    #[must_use]
    pub fn must(&self) -> Option<String> {
        Some(match self {
            Text => return None,
            Boolean | Fixed(_) | OnceTrue => "its value must be true or false".to_owned(),
            Number(least, i32::MAX) => format!("its value must be a whole number, not below {least}"),
            Number(least, most) => format!("its value must be a whole number, not below {least} and not above {most}"),
            LimitOrNone(least) => format!("its value must be 0, for no limit, or a whole number, not below {least}"),
            Share => "its value must be a number above 0, not above 1".to_owned(),
        })
    }
}

/// A number as Java reads it. With a leading zero it would be an octal one.
fn whole(value: &str) -> Option<i32> {
    value.parse().ok().filter(|number: &i32| number.to_string() == value)
}

/// Why a server would not start with these times together. A session lasts 2 to 20 ticks by default. `value` has the default of
/// `tickTime` too.
#[must_use]
pub fn refusal_of_sessions<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let number = |name: &str| value(name).and_then(|value| whole(value.trim()));
    let tick = number("tickTime")?;
    let shortest = number("minSessionTimeout").unwrap_or(tick.saturating_mul(2));
    let longest = number("maxSessionTimeout").unwrap_or(tick.saturating_mul(20));
    let message = || {
        format!(
            "minSessionTimeout {shortest} is above maxSessionTimeout {longest}, so ZooKeeper does not start. Without a value, they are 2 and 20 times tickTime"
        )
    };
    (shortest > longest).then(message)
}

/// Why servers that run with these values of settings cannot take others: what they have stored would be unreadable or lost.
#[must_use]
pub fn refusal_of_change<'a>(
    before: impl Fn(&str) -> Option<&'a str>,
    after: impl Fn(&str) -> Option<&'a str>,
) -> Option<String> {
    let is = |value: Option<&str>| value.map(|value| value.trim().eq_ignore_ascii_case("true"));
    SETTINGS.iter().flat_map(|group| group.names().map(move |name| (group, name))).find_map(|(group, name)| {
        let refused = match group.value {
            Fixed(default) => is(before(name)).unwrap_or(default) != is(after(name)).unwrap_or(default),
            OnceTrue => is(before(name)) == Some(true) && is(after(name)) != Some(true),
            _ => false,
        };
        refused.then(|| format!("{name}: {}", group.why))
    })
}

/// The group of a setting; `None` if `ZooKeeper` 3.9 has none of this name.
#[must_use]
pub fn group_of(name: &str) -> Option<&'static SettingGroup> {
    SETTINGS.iter().find(|group| group.has(name))
}

/// Why mczk refuses an entry of `zooCfg`.
#[must_use]
pub fn refusal_in_zoo_cfg(name: &str, value: &str) -> Option<String> {
    match group_of(name) {
        None => Some(similar(name).unwrap_or_else(|| UNKNOWN.to_owned())),
        Some(group) if group.allowed == Refused => Some(group.why.to_owned()),
        Some(group) if group.field == Flag => Some(BELONGS_IN_FLAGS.to_owned()),
        Some(group) => group.refusal_of(value),
    }
}

/// Why mczk refuses a flag of the Java virtual machine. Properties that are none of `ZooKeeper`'s pass.
#[must_use]
pub fn refusal_of_flag(flag: &str) -> Option<String> {
    let (option, value) = flag.split_once('=').unwrap_or((flag, ""));
    let is_refused = REFUSED_OPTIONS.split_whitespace().any(|refused| refused == option);
    if !flag.starts_with('-') || flag.contains(['\n', '\r']) || is_refused {
        return Some(NO_FLAG.to_owned());
    }
    refusal_of_property(option.strip_prefix("-D")?, value)
}

fn refusal_of_property(property: &str, value: &str) -> Option<String> {
    let with_prefix = property.strip_prefix(PROPERTY_PREFIX);
    let name = with_prefix.unwrap_or(property);
    let Some(group) = group_of(name) else {
        return similar(name).filter(|_| with_prefix.is_some() || name.contains('.'));
    };
    match (group.allowed, group.field, with_prefix) {
        (Refused, Flag, None) | (Refused, ZooCfg, Some(_)) => Some(group.why.to_owned()),
        (Refused, ..) => None,
        (_, Flag, None) => group.refusal_of(value),
        (_, Flag, Some(_)) => Some(BELONGS_IN_FLAGS.to_owned()),
        // Another program may have properties that begin so.
        (_, ZooCfg, None) if !group.names().any(|own| own == name) => None,
        (_, ZooCfg, _) => Some(BELONGS_IN_ZOO_CFG.to_owned()),
    }
}

/// A correction of a name that differs from a known one in the case of its letters.
fn similar(name: &str) -> Option<String> {
    let known = SETTINGS.iter().flat_map(SettingGroup::names).find(|known| known.eq_ignore_ascii_case(name))?;
    Some(format!("ZooKeeper writes this name {known}: correct it"))
}
