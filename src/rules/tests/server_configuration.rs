//! The configuration files of ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use mczk_api::{
    contract::control_api::{Configuration, ConfiguredServer, ServerConfig},
    pod::ZooCfgEntry,
    tls::{ClientTls, ClientTlsMode},
    zookeeper::Role,
};
use mczk_rules::server::{
    credentials,
    dynamic_configuration::{ClientAddress, line, parse, seed, with_client_address},
    jvm::{self, check_variable, heap, jvm_flags},
    paths::Paths,
    zoo_cfg::{InvalidSetting, mentioned_settings, zoo_cfg},
};
use rstest::rstest;

fn paths() -> Paths {
    Paths {
        active_data: "/data/active".into(),
        scratch: "/tmp".into(),
        address: "0.0.0.0".parse().unwrap(),
        hosts: None,
    }
}

fn config() -> ServerConfig {
    ServerConfig {
        name: "zk".into(),
        cluster: "m1".into(),
        role: Role::Voter,
        revision: "r".into(),
        zoo_cfg: vec![],
        jvm_flags: vec![],
        memory_limit: Some(1 << 30),
        quorum_tls: true,
        client_tls: None,
    }
}

fn entry(name: &str, value: &str) -> ZooCfgEntry {
    ZooCfgEntry { name: name.into(), value: value.into() }
}

fn dynamic() -> &'static Path {
    Path::new("/data/active/conf/zoo.cfg.dynamic.100000000")
}

#[test]
fn with_tls_between_servers() {
    insta::assert_snapshot!(zoo_cfg(&paths(), &config(), dynamic()).unwrap(), @r"
    tickTime=2000
    initLimit=30
    syncLimit=5
    leader.maxTimeToWaitForEpoch=3000
    learner.closeSocketAsync=true
    leader.closeSocketAsync=true
    autopurge.snapRetainCount=3
    autopurge.purgeInterval=1
    quorumCnxnTimeoutMs=3000
    tcpKeepAlive=true
    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
    dataDir=/data/active/data
    dynamicConfigFile=/data/active/conf/zoo.cfg.dynamic.100000000
    reconfigEnabled=true
    standaloneEnabled=false
    db.autocreate=false
    quorumListenOnAllIPs=true
    4lw.commands.whitelist=srvr,mntr,conf,ruok
    admin.enableServer=true
    admin.serverAddress=127.0.0.1
    admin.serverPort=7001
    admin.snapshot.enabled=false
    admin.restore.enabled=false
    metricsProvider.httpHost=0.0.0.0
    metricsProvider.httpPort=7000
    sslQuorum=true
    sslQuorumReloadCertFiles=true
    ssl.quorum.protocol=TLSv1.3
    ssl.quorum.enabledProtocols=TLSv1.3
    ssl.quorum.keyStore.location=/tmp/quorum.pem
    ssl.quorum.keyStore.type=PEM
    ssl.quorum.trustStore.location=/tmp/quorum-ca.pem
    ssl.quorum.trustStore.type=PEM
    ssl.quorum.hostnameVerification=false
    ");
}

#[test]
fn with_tls_for_clients_and_settings_of_users() {
    let client_tls = Some(ClientTls { mode: ClientTlsMode::Optional, secret_name: "s".into(), certificates: None });
    let zoo = vec![entry("tickTime", "3000"), entry("maxClientCnxns", "200")];
    let config = ServerConfig { quorum_tls: false, client_tls, zoo_cfg: zoo, ..config() };
    insta::assert_snapshot!(zoo_cfg(&paths(), &config, dynamic()).unwrap(), @r"
    tickTime=3000
    initLimit=30
    syncLimit=5
    leader.maxTimeToWaitForEpoch=3000
    learner.closeSocketAsync=true
    leader.closeSocketAsync=true
    autopurge.snapRetainCount=3
    autopurge.purgeInterval=1
    quorumCnxnTimeoutMs=3000
    tcpKeepAlive=true
    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
    maxClientCnxns=200
    dataDir=/data/active/data
    dynamicConfigFile=/data/active/conf/zoo.cfg.dynamic.100000000
    reconfigEnabled=true
    standaloneEnabled=false
    db.autocreate=false
    quorumListenOnAllIPs=true
    4lw.commands.whitelist=srvr,mntr,conf,ruok
    admin.enableServer=true
    admin.serverAddress=127.0.0.1
    admin.serverPort=7001
    admin.snapshot.enabled=false
    admin.restore.enabled=false
    metricsProvider.httpHost=0.0.0.0
    metricsProvider.httpPort=7000
    serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
    secureClientPort=2281
    secureClientPortAddress=0.0.0.0
    client.certReload=true
    ssl.clientAuth=need
    client.portUnification=true
    ssl.keyStore.location=/tmp/client.pem
    ssl.keyStore.type=PEM
    ssl.trustStore.location=/tmp/client-ca.pem
    ssl.trustStore.type=PEM
    ");
}

/// What refuses a setting; `None` if it is written.
fn refusal(name: &str, value: &str) -> Option<String> {
    let config = ServerConfig { zoo_cfg: vec![entry(name, value)], ..config() };
    zoo_cfg(&paths(), &config, dynamic()).err().map(|error| error.to_string())
}

#[rstest]
#[case("dataDir", "the operator manages")]
#[case("skipACL", "mczk signs in")]
#[case("server.9", "the operator manages")]
#[case("ssl.quorum.trustStore.location", "set tls.quorum")]
#[case("ssl.trustStore.password", "set tls.client")]
#[case("db.autocreate", "the operator manages")]
#[case("reconfigEnabled", "the operator manages")]
#[case("zookeeper.skipACL", "no setting of ZooKeeper 3.9 has this name")]
#[case("forceSync", "acknowledged writes")]
#[case("oraclePath", "a session would no longer prove")]
#[case("leaderServes", "a session would no longer prove")]
#[case("localSessionsEnabled", "a session would no longer prove")]
#[case("quorum.auth.enableSasl", "servers authenticate each other by tls.quorum")]
#[case("quorum.auth.kerberos.servicePrincipal", "servers authenticate each other by tls.quorum")]
#[case("metricsProvider.httpHost", "the operator manages")]
#[case("metricsProvider.className", "the operator manages")]
#[case("admin.commandURL", "the operator manages")]
#[case("jute.maxbuffer.extrasize", "set jute.maxbuffer in template.zooCfg")]
#[case("testingonly.initialZxid", "acknowledged writes")]
#[case("znode.container.maxPerMinute", "set it in jvmFlags, as -DNAME=VALUE")]
#[case("readonlymode.enabled", "a session would no longer prove")]
#[case("snapCountt", "no setting of ZooKeeper 3.9 has this name")]
#[case("ticktime", "ZooKeeper writes this name tickTime")]
fn a_setting_is_refused_with_its_remedy(#[case] name: &str, #[case] why: &str) {
    let message = refusal(name, "a-secret").unwrap_or_else(|| panic!("{name} is accepted"));
    assert!(message.starts_with(&format!("zooCfg {name} is refused: ")) && message.contains(why), "{message}");
}

/// `ZooKeeper` ends at once with such times.
#[rstest]
#[case(&[("minSessionTimeout", "50000")], Some("minSessionTimeout 50000 is above maxSessionTimeout 40000"))]
#[case(&[("tickTime", "10000"), ("maxSessionTimeout", "15000")], Some("minSessionTimeout 20000 is above maxSessionTimeout 15000"))]
#[case(&[("minSessionTimeout", "50000"), ("maxSessionTimeout", "50000")], None)]
#[case(&[("tickTime", "3000"), ("minSessionTimeout", "50000")], None)]
fn sessions_have_a_length(#[case] entries: &[(&str, &str)], #[case] why: Option<&str>) {
    let all = entries.iter().map(|(name, value)| entry(name, value)).collect();
    let config = ServerConfig { zoo_cfg: all, ..config() };
    let refused = zoo_cfg(&paths(), &config, dynamic()).err().map(|error| error.to_string());
    let is_expected = match (&refused, why) {
        (Some(refused), Some(why)) => refused.contains(why),
        (refused, why) => refused.is_none() && why.is_none(),
    };
    assert!(is_expected, "{refused:?}");
}

/// ZooKeeper would take the default in place of most of these values, and say nothing. With others no server could lead.
#[rstest]
#[case("tickTime", "abc", false)]
#[case("tickTime", "0", false)]
// A restart lock would end before its holder has acted.
#[case("tickTime", "499", false)]
#[case("tickTime", "500", true)]
#[case("maxSessionTimeout", "9999", false)]
#[case("maxClientCnxns", "0", true)]
#[case("maxClientCnxns", "3", true)]
// The parent could never hold the restart lock.
#[case("maxClientCnxns", "1", false)]
#[case("maxCnxns", "2", false)]
#[case("snapCount", "100k", false)]
#[case("snapCount", "0100", false)]
#[case("snapCount", "3000000000", false)]
#[case("snapCount", " 100 ", true)]
#[case("digest.enabled", "no", false)]
#[case("digest.enabled", "False", true)]
#[case("autopurge.snapRetainCount", "2", false)]
#[case("commitLogCount", "499", false)]
#[case("jute.maxbuffer", "4m", false)]
#[case("jute.maxbuffer", "1048574", false)]
#[case("jute.maxbuffer", "1048575", true)]
#[case("leader.maxConcurrentSnapSyncs", "0", false)]
#[case("leader.maxConcurrentSnapSyncs", "1", true)]
#[case("leader.maxConcurrentDiffSyncs", "0", false)]
#[case("messageTracker.BufferSize", "0", false)]
#[case("messageTracker.BufferSize", "2147483647", false)]
#[case("snapSizeLimitInKb", "0", false)]
#[case("initLimit", "10001", false)]
#[case("request_throttle_stall_time", "-1", false)]
#[case("pathStats.sampleRate", "1", true)]
#[case("pathStats.sampleRate", "1.1", false)]
#[case("snapshotSizeFactor", "NaN", false)]
#[case("connection_throttle_drop_decrease", "0", false)]
#[case("connection_throttle_drop_increase", "a tenth", false)]
#[case("metricsProvider.exportJvmInfo", "true", true)]
#[case("authProvider.mine", "org.example.Mine", true)]
fn a_value_is_one_that_zookeeper_reads(#[case] name: &str, #[case] value: &str, #[case] accepted: bool) {
    let refused = refusal(name, value);
    let expected = (!accepted).then(|| format!("zooCfg {name} is refused: its value must be "));
    match (refused, expected) {
        (None, None) => {}
        (Some(refused), Some(expected)) => assert!(refused.starts_with(&expected), "{refused}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_limit_of_a_request_is_a_flag_of_every_server() {
    let zoo = vec![entry("jute.maxbuffer", "4194304")];
    let config = ServerConfig { zoo_cfg: zoo, jvm_flags: vec!["-Xmx64m".into()], ..config() };
    assert!(jvm_flags(&paths(), &config).unwrap().contains(&"-Djute.maxbuffer=4194304".to_owned()));
    assert!(!zoo_cfg(&paths(), &config, dynamic()).unwrap().contains("jute"));
}

#[rstest]
#[case::line_break("1\nskipACL=yes")]
#[case::joins_the_next_line("1\\")]
fn a_setting_stays_one_line(#[case] value: &str) {
    let config = ServerConfig { zoo_cfg: vec![entry("tickTime", value)], ..config() };
    assert_eq!(zoo_cfg(&paths(), &config, dynamic()), Err(InvalidSetting::LineBreak("tickTime".into())));
}

/// Java's properties take a backslash for an escape, and bytes for Latin-1.
#[rstest]
#[case::backslash(r"RULE:[1:$1](.*\.org)", r"RULE:[1:$1](.*\\.org)")]
#[case::letters("M\u{fc}ller", r"M\u00fcller")]
#[case::beyond_16_bits("\u{1f600}", r"\ud83d\ude00")]
#[case::tab("a\tb", r"a\u0009b")]
fn a_value_reaches_zookeeper_as_it_is(#[case] value: &str, #[case] expected: &str) {
    let config = ServerConfig { zoo_cfg: vec![entry("security.auth_to_local", value)], ..config() };
    let text = zoo_cfg(&paths(), &config, dynamic()).unwrap();
    assert!(text.lines().any(|line| line == format!("security.auth_to_local={expected}")), "{text}");
}

/// Java's properties would read the name of an owned setting.
#[rstest]
#[case("dataDir /tmp", "dataDir")]
#[case("dataDir:/tmp", "dataDir")]
#[case("data\\u0044ir", "data\\u0044ir")]
#[case(" dataDir", "dataDir")]
#[case("", "")]
fn a_setting_has_a_plain_name(#[case] name: &str, #[case] shown: &str) {
    let config = ServerConfig { zoo_cfg: vec![entry(name, "x")], ..config() };
    assert_eq!(zoo_cfg(&paths(), &config, dynamic()), Err(InvalidSetting::Name(shown.into())));
}

#[test]
fn flags_of_users_come_first() {
    let with_flag = ServerConfig { jvm_flags: vec!["-XX:+UseZGC".into()], ..config() };
    insta::assert_debug_snapshot!(jvm_flags(&paths(), &with_flag).unwrap(), @r#"
    [
        "-XX:+UseZGC",
        "-Xmx768m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.security.properties=/tmp/java.security",
        "-Dlogback.configurationFile=/tmp/logback.xml",
    ]
    "#);
    for own in ["-Xmx64m", "-mx64m", "-XX:MaxHeapSize=64m", "-XX:MaxRAM=1g", "-XX:MaxRAMFraction=2"] {
        let sized = ServerConfig { jvm_flags: vec![own.into()], ..config() };
        let flags = jvm_flags(&paths(), &sized).unwrap();
        assert!(flags.iter().all(|flag| flag == own || !flag.starts_with("-Xmx")), "{flags:?}");
    }
}

/// An autoscaler gives the pod less than the spec says.
#[rstest]
#[case::lower(Some(1 << 30), Some("629145600\n"), Some(629_145_600))]
#[case::higher(Some(1 << 30), Some("2147483648\n"), Some(1 << 30))]
#[case::without_a_limit(Some(1 << 30), Some("max\n"), Some(1 << 30))]
#[case::unreadable(Some(1 << 30), None, Some(1 << 30))]
#[case::undeclared(None, Some("629145600\n"), None)]
fn the_heap_follows_the_lower_limit(
    #[case] declared: Option<u64>,
    #[case] real: Option<&str>,
    #[case] expected: Option<u64>,
) {
    assert_eq!(jvm::memory_limit(declared, real), expected);
}

#[rstest]
#[case("-Dzookeeper.skipACL=yes", "mczk signs in")]
#[case("-Dzookeeper.skipACL", "mczk signs in")]
#[case("-Dzookeeper.DigestAuthenticationProvider.superDigest=x", "mczk signs in")]
#[case("-Dzookeeper.ssl.quorum.keyStore.location=/tmp/x", "set tls.quorum")]
#[case("-Dzookeeper.forceSync=no", "acknowledged writes")]
#[case("-Djdk.net.hosts.file=/tmp/hosts", "how Java resolves names")]
#[case("-Dsun.net.inetaddr.ttl=60", "how Java resolves names")]
#[case("@/tmp/flags", "a flag is one option with its value")]
#[case("-XX:Flags=/tmp/flags", "a flag is one option with its value")]
#[case("-XX:VMOptionsFile=/tmp/flags", "a flag is one option with its value")]
#[case("-XX:OnOutOfMemoryError=sleep 60", "commands that run when Java fails")]
#[case("-cp", "a flag is one option with its value")]
#[case("-version", "a flag is one option with its value")]
#[case("org.example.Main", "a flag is one option with its value")]
#[case("-Xmx64m\n-Dx=y", "a flag is one option with its value")]
#[case("-Djute.maxbuffer=4194304", "set it in template.zooCfg")]
#[case("-Dzookeeper.jute.maxbuffer=4194304", "set it in template.zooCfg")]
#[case("-Djute.maxBuffer=4194304", "ZooKeeper writes this name jute.maxbuffer")]
#[case("-Dzookeeper.tickTime=3000", "set it in template.zooCfg")]
#[case("-DsnapCount=1000", "set it in template.zooCfg")]
#[case("-Dzookeeper.snapcount=1000", "ZooKeeper writes this name snapCount")]
#[case("-Dzookeeper.extendedTypesEnabled=true", "set it in template.zooCfg")]
#[case("-Dzookeeper.leader.nodelay=false", "set it in jvmFlags, as -DNAME=VALUE")]
#[case("-Dreadonlymode.enabled=true", "a session would no longer prove")]
#[case("-Dzookeeper.admin.enableServer=true", "the operator manages this setting")]
// Only a leader reads them.
#[case("-Dznode.container.checkIntervalMs=0", "its value must be a whole number, not below 100")]
#[case("-Dznode.container.maxPerMinute=0", "its value must be a whole number, not below 1")]
#[case("-Dznode.container.maxNeverUsedIntervalMs=-1", "its value must be a whole number, not below 0")]
#[case("-Dleader.nodelay", "its value must be true or false")]
fn a_flag_is_refused_with_its_remedy(#[case] flag: &str, #[case] why: &str) {
    let config = ServerConfig { jvm_flags: vec![flag.into()], ..config() };
    let error = jvm_flags(&paths(), &config).unwrap_err();
    let name = flag.split(['=', ' ', '\n']).next().unwrap();
    assert!(matches!(&error, InvalidSetting::Flag("jvmFlags", flag, _) if flag == name), "{error:?}");
    assert!(error.to_string().contains(why), "{error}");
}

#[rstest]
#[case("-Xmx1g")]
#[case("-javaagent:/agents/opentelemetry.jar=port=1")]
#[case("-Dzookeeper.of.a.plugin=x")]
#[case("-Dserver.port=9")]
#[case("-Dversion=1")]
#[case("-Dznode.container.checkIntervalMs=1000")]
#[case("-Djava.net.preferIPv6Addresses=true")]
#[case("--add-opens=java.base/java.lang=ALL-UNNAMED")]
fn other_flags_pass(#[case] flag: &str) {
    let config = ServerConfig { jvm_flags: vec![flag.into()], ..config() };
    assert!(jvm_flags(&paths(), &config).unwrap().contains(&flag.to_owned()));
}

/// The image can set them, and Java reads them.
#[rstest]
#[case("-javaagent:/otel.jar \"-Dname=two words\"", None)]
#[case("-Xmx1g '-Dzookeeper.skipACL=yes'", Some("-Dzookeeper.skipACL"))]
#[case("-D\"jute.maxbuffer\"=1", Some("-Djute.maxbuffer"))]
#[case("@/tmp/flags", Some("@/tmp/flags"))]
fn flags_in_the_environment_are_checked(#[case] value: &str, #[case] refused: Option<&str>) {
    let message = check_variable("JDK_JAVA_OPTIONS", value).err().map(|error| error.to_string());
    let expected = refused.map(|flag| format!("JDK_JAVA_OPTIONS {flag} is refused: "));
    assert_eq!(message.is_some(), expected.is_some(), "{message:?}");
    assert!(message.unwrap_or_default().starts_with(&expected.unwrap_or_default()));
}

#[rstest]
#[case(256, 64)]
#[case(512, 256)]
#[case(1024, 768)]
#[case(4096, 3072)]
fn the_heap_leaves_room(#[case] limit: u64, #[case] expected: u64) {
    assert_eq!(heap(limit << 20), expected << 20);
}

#[test]
fn a_seed_parses_to_its_servers() {
    let servers = vec![
        ConfiguredServer { id: 1, host: "s1.example".into(), role: Role::Voter },
        ConfiguredServer { id: 12, host: "s2.example".into(), role: Role::Observer },
    ];
    let text = seed(&servers, ClientAddress::Any);
    insta::assert_snapshot!(text, @r"
    server.1=s1.example:2888:3888:participant;0.0.0.0:2181
    server.12=s2.example:2888:3888:observer;0.0.0.0:2181
    ");
    assert_eq!(parse(&text), Some(Configuration { version: 0, servers: servers.clone() }));
    assert_eq!(with_client_address(&text, 1, ClientAddress::Any), None);
    assert_eq!(with_client_address(&text, 3, ClientAddress::Loopback), None);
    insta::assert_snapshot!(with_client_address(&text, 1, ClientAddress::Loopback).unwrap(), @r"
    server.1=s1.example:2888:3888:participant;127.0.0.1:2181
    server.12=s2.example:2888:3888:observer;0.0.0.0:2181
    ");
    let local = Paths { address: "127.0.9.1".parse().unwrap(), ..paths() };
    assert_eq!(
        line(&servers[0], ClientAddress::of(&local, &config())),
        "server.1=s1.example:2888:3888:participant;s1.example:2181"
    );
}

#[test]
fn the_answer_of_zookeeper_parses() {
    let text =
        "server.1=s1:2888:3888:participant;0.0.0.0:2181\nserver.2=[fd00::2]:2888:3888:observer\nversion=10000000a";
    let servers = vec![
        ConfiguredServer { id: 1, host: "s1".into(), role: Role::Voter },
        ConfiguredServer { id: 2, host: "fd00::2".into(), role: Role::Observer },
    ];
    assert_eq!(parse(text), Some(Configuration { version: 0x1_0000_000a, servers }));
    for broken in ["", "version=1", "server.1=", "server.x=a:1:2", "nonsense"] {
        assert_eq!(parse(broken), None, "{broken}");
    }
}

#[test]
fn paths_of_files() {
    let paths = paths();
    assert_eq!(paths.zoo_cfg(), PathBuf::from("/data/active/conf/zoo.cfg"));
    assert_eq!(paths.own_address().to_string(), "127.0.0.1");
}

/// Java takes 0.0.0.0 for all addresses of both families, and fails with `::` if the kernel has no IPv6.
#[test]
fn zookeeper_listens_alike_on_all_addresses_of_either_family() {
    let both = Paths { address: "::".parse().unwrap(), ..paths() };
    let tls = ClientTls { mode: ClientTlsMode::Required, secret_name: "s".into(), certificates: None };
    let config = ServerConfig { client_tls: Some(tls), ..config() };
    assert_eq!(zoo_cfg(&both, &config, dynamic()).unwrap(), zoo_cfg(&paths(), &config, dynamic()).unwrap());
    assert_eq!(ClientAddress::of(&both, &config), ClientAddress::Loopback);
    assert_eq!(both.own_address().to_string(), "127.0.0.1");
    let one = Paths { address: "fd00::1".parse().unwrap(), ..paths() };
    assert_eq!(one.own_address(), one.address);
}

#[rstest]
#[case::by_its_value("Caused by: java.lang.NumberFormatException: For input string: \"abc\"", Some("zooCfg tickTime"))]
#[case::by_its_name("Unrecognised snapCount.", Some("zooCfg snapCount"))]
#[case::another_setting("snapCountX is 7, and abc", None)]
fn settings_that_zookeeper_refuses_are_named(#[case] lines: &str, #[case] named: Option<&str>) {
    let settings = [entry("tickTime", "abc"), entry("snapCount", "7")];
    assert_eq!(mentioned_settings(&settings, lines).as_deref(), named);
}

/// A refusal is logged, and stands in the status.
#[rstest]
#[case::property("-Dzookeeper.ssl.keyStore.password=h0rse")]
#[case::digest("-Dzookeeper.DigestAuthenticationProvider.superDigest=super:h0rse")]
#[case::prefix_of_an_owned_flag("-Dzookeeper.ssl.quorum.keyStore.x=h0rse")]
#[case::line_break("-Dpassword=a\nh0rse")]
#[case::line_break_before_the_value("-Dpassword\nh0rse=")]
#[case::space("-Dzookeeper.skipACL= h0rse")]
fn a_refused_flag_shows_no_value(#[case] flag: &str) {
    let refused = jvm_flags(&paths(), &ServerConfig { jvm_flags: vec![flag.into()], ..config() }).unwrap_err();
    let text = format!("{refused} {refused:?}");
    assert!(text.contains("-D") && !text.contains("h0rse"), "{text}");
}

#[rstest]
#[case::owned("ssl.keyStore.password=h0rse", "x")]
#[case::owned_with_a_space("ssl.keyStore.password h0rse", "x")]
#[case::no_name("password=h0rse", "x")]
#[case::no_name_with_a_colon("password:h0rse", "x")]
#[case::line_break("a.password", "h0rse\n")]
fn a_refused_setting_shows_no_value(#[case] name: &str, #[case] value: &str) {
    let refused =
        zoo_cfg(&paths(), &ServerConfig { zoo_cfg: vec![entry(name, value)], ..config() }, dynamic()).unwrap_err();
    let text = format!("{refused} {refused:?}");
    assert!(text.contains("password") && !text.contains("h0rse"), "{text}");
}

#[test]
fn credentials_of_settings_and_flags_are_found() {
    let config = ServerConfig {
        zoo_cfg: vec![entry("metricsProvider.ssl.keyStore.password", "h0rse"), entry("tickTime", "2000")],
        jvm_flags: vec!["-Djavax.net.ssl.trustStorePassword=b4ttery".into(), "-Dpwd=x".into(), "-Xmx64m".into()],
        ..config()
    };
    assert_eq!(credentials::values(&config), ["h0rse", "b4ttery"]);
}

#[rstest]
#[case::plain("-Xmx1g -Dx.keyStorePassword=h0rse -Dy=2", &["h0rse"])]
#[case::quoted_value("-Dx.password=\"h0 rse\" -Dtoken='b4t tery'", &["h0 rse", "b4t tery"])]
#[case::quoted_flag("\"-Dx.password=h0 rse\"", &["h0 rse"])]
#[case::no_end_of_a_quote("-Dx.password='h0 rse", &["h0 rse"])]
#[case::none("-Xmx1g", &[])]
fn credentials_of_a_variable_are_found(#[case] text: &str, #[case] expected: &[&str]) {
    assert_eq!(credentials::in_variable(text), expected);
}
