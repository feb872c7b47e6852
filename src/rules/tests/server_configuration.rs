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
    jvm::{heap, jvm_flags},
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
    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
    dataDir=/data/active/data
    dynamicConfigFile=/data/active/conf/zoo.cfg.dynamic.100000000
    reconfigEnabled=true
    standaloneEnabled=false
    db.autocreate=false
    quorumListenOnAllIPs=true
    4lw.commands.whitelist=srvr,mntr,conf,ruok
    admin.enableServer=false
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
    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
    maxClientCnxns=200
    dataDir=/data/active/data
    dynamicConfigFile=/data/active/conf/zoo.cfg.dynamic.100000000
    reconfigEnabled=true
    standaloneEnabled=false
    db.autocreate=false
    quorumListenOnAllIPs=true
    4lw.commands.whitelist=srvr,mntr,conf,ruok
    admin.enableServer=false
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

#[rstest]
#[case("dataDir")]
#[case("skipACL")]
#[case("server.9")]
#[case("ssl.quorum.trustStore.location")]
#[case("db.autocreate")]
#[case("reconfigEnabled")]
#[case("zookeeper.skipACL")]
#[case("forceSync")]
#[case("oraclePath")]
#[case("leaderServes")]
#[case("localSessionsEnabled")]
fn an_owned_setting_is_refused(#[case] name: &str) {
    let config = ServerConfig { zoo_cfg: vec![entry(name, "x")], ..config() };
    assert_eq!(zoo_cfg(&paths(), &config, dynamic()), Err(InvalidSetting::OwnedSetting(name.into())));
}

#[rstest]
#[case::line_break("1\nskipACL=yes")]
#[case::joins_the_next_line("1\\")]
fn a_setting_stays_one_line(#[case] value: &str) {
    let config = ServerConfig { zoo_cfg: vec![entry("tickTime", value)], ..config() };
    assert_eq!(zoo_cfg(&paths(), &config, dynamic()), Err(InvalidSetting::LineBreak("tickTime".into())));
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
fn flags_of_users_come_first_and_owned_flags_are_refused() {
    let with_flag = ServerConfig { jvm_flags: vec!["-XX:+UseZGC".into()], ..config() };
    insta::assert_debug_snapshot!(jvm_flags(&paths(), &with_flag).unwrap(), @r#"
    [
        "-XX:+UseZGC",
        "-Xmx768m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.security.properties=/tmp/java.security",
    ]
    "#);
    let allowed = ServerConfig { jvm_flags: vec!["-Dzookeeper.extendedTypesEnabled=true".into()], ..config() };
    assert!(jvm_flags(&paths(), &allowed).is_ok());
    let sized = ServerConfig { jvm_flags: vec!["-Xmx64m".into()], ..config() };
    assert!(jvm_flags(&paths(), &sized).unwrap().iter().filter(|f| f.starts_with("-Xmx")).eq(["-Xmx64m"]));
    for flag in [
        "-Dzookeeper.skipACL=yes",
        "-Dzookeeper.skipACL",
        "-Dzookeeper.DigestAuthenticationProvider.superDigest=x",
        "-Dzookeeper.ssl.quorum.keyStore.location=/tmp/x",
        "-Dzookeeper.forceSync=no",
        "-Djdk.net.hosts.file=/tmp/hosts",
        "@/tmp/flags",
    ] {
        let config = ServerConfig { jvm_flags: vec![flag.into()], ..config() };
        assert_eq!(
            jvm_flags(&paths(), &config),
            Err(InvalidSetting::OwnedFlag(flag.split('=').next().unwrap().into()))
        );
    }
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
#[case::prefix_of_an_owned_flag("-Djava.security.properties.x=h0rse")]
#[case::line_break("-Dpassword=a\nh0rse")]
#[case::line_break_before_the_value("-Dpassword\nh0rse=")]
#[case::space("-Djava.security.properties h0rse")]
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
