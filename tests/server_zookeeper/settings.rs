//! Settings: every name in `ZooKeeper`'s own classes stands in the table, what the table allows works, and a limit that is too
//! low destroys nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use flate2::read::DeflateDecoder;
use mczk_api::{
    contract::{
        control_api::Phase,
        settings::{SETTINGS, SettingField, SettingGroup, SettingUse, SettingValue, group_of},
    },
    pod::ZooCfgEntry,
    tls::{ClientTls, ClientTlsMode},
};
use zookeeper_client::{Acls, CreateMode};

use crate::authority::Authority;
use crate::world::{World, bootstrap, home};

fn entry(name: &str, value: &str) -> ZooCfgEntry {
    ZooCfgEntry { name: name.to_owned(), value: value.to_owned() }
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

/// The classes in a jar, by name.
fn classes(jar: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(jar).unwrap();
    let end = bytes.windows(4).rposition(|window| window == b"PK\x05\x06").unwrap();
    let mut at = number(&bytes, end + 16, 4);
    let mut all = Vec::new();
    for _ in 0..number(&bytes, end + 10, 2) {
        let [name, extra, comment] = [28, 30, 32].map(|field| number(&bytes, at + field, 2));
        let file = String::from_utf8(bytes[at + 46..at + 46 + name].to_vec()).unwrap();
        let (compressed, local) = (number(&bytes, at + 20, 4), number(&bytes, at + 42, 4));
        let data = local + 30 + number(&bytes, local + 26, 2) + number(&bytes, local + 28, 2);
        let content = &bytes[data..data + compressed];
        if Path::new(&file).extension().is_some_and(|extension| extension == "class") {
            let mut class = Vec::new();
            match number(&bytes, at + 10, 2) {
                0 => class.extend(content),
                _ => {
                    DeflateDecoder::new(content).read_to_end(&mut class).unwrap();
                }
            }
            all.push((file, class));
        }
        at += 46 + name + extra + comment;
    }
    all
}

/// The string constants of a class, and its constants of any kind that are texts, such as names of methods that it calls.
fn constants(class: &[u8]) -> (Vec<String>, BTreeSet<String>) {
    let short = |at: usize| (usize::from(class[at]) << 8) | usize::from(class[at + 1]);
    let (mut texts, mut strings, mut at, mut index) = (vec![String::new(); short(8)], Vec::new(), 10, 1);
    while index < short(8) {
        let length = match class[at] {
            1 => {
                let length = short(at + 1);
                texts[index] = String::from_utf8_lossy(&class[at + 3..at + 3 + length]).into_owned();
                2 + length
            }
            7 | 16 | 19 | 20 => 2,
            8 => {
                strings.push(short(at + 1));
                2
            }
            15 => 3,
            5 | 6 => 8,
            _ => 4,
        };
        // Numbers of 64 bits take two places.
        index += if matches!(class[at], 5 | 6) { 2 } else { 1 };
        at += 1 + length;
    }
    (strings.into_iter().map(|place| texts[place].clone()).collect(), texts.into_iter().collect())
}

/// The names of settings in a class, as the table has them.
fn names_in(file: &str, class: &[u8]) -> BTreeSet<String> {
    /// Constants beside the names of settings.
    const OTHERS: [&str; 12] = [
        "version",
        "QuorumLearner",
        "QuorumServer",
        "false",
        "true",
        "observer",
        "participant",
        "myid",
        "x509",
        "group",
        "weight",
        "currentEpoch.tmp",
    ];
    /// Properties of Java, names of classes and of versions of TLS.
    const OF_JAVA: [&str; 14] = [
        "java.",
        "javax.",
        "os.",
        "user.",
        "line.",
        "host.",
        "org.",
        "com.",
        "sun.",
        "jdk.",
        "ocsp.",
        "TLS",
        "PKIX",
        "zookeeper.",
    ];
    let (strings, texts) = constants(class);
    let reads = ["getProperty", "getInteger", "getLong", "getBoolean"].iter().any(|method| texts.contains(*method));
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let mut names = BTreeSet::new();
    for text in strings.iter().filter(|text| is_name(text) && !text.ends_with('.') && !OTHERS.contains(&text.as_str()))
    {
        let of_java = OF_JAVA.iter().any(|prefix| text.starts_with(prefix)) || !text.starts_with(char::is_alphabetic);
        if let Some(name) = text.strip_prefix("zookeeper.").filter(|name| !OTHERS.contains(name)) {
            names.insert(name.to_owned());
        } else if file.ends_with("/X509Util.class") && !of_java {
            names.extend(["ssl.", "ssl.quorum."].map(|prefix| format!("{prefix}{text}")));
        } else if !of_java
            && (file.ends_with("/QuorumPeerConfig.class")
                || reads && text.contains('.') && file.starts_with("org/apache/"))
        {
            names.insert(text.clone());
        }
    }
    names
}

#[test]
#[ignore = "needs ZooKeeper's jars: make test-zookeeper"]
fn every_setting_in_the_classes_of_zookeeper_stands_in_the_table() {
    // 3.9.5 added the first, and ClientX509Util makes the others of two parts.
    const ELSEWHERE: [&str; 3] = ["ssl.allowReverseDnsLookup", "ssl.authProvider", "ssl.sslProvider"];
    let jars = fs::read_dir(home().join("lib")).unwrap().map(|jar| jar.unwrap().path());
    let jars = jars.filter(|jar| jar.file_name().unwrap().to_str().unwrap().starts_with("zookeeper-"));
    let classes: Vec<_> = jars.flat_map(|jar| classes(&jar)).collect();
    let names: BTreeSet<String> = classes.iter().flat_map(|(file, class)| names_in(file, class)).collect();
    for sample in ["tickTime", "jute.maxbuffer", "snapCount", "ssl.crl", "quorum.auth.enableSasl", "leader.nodelay"] {
        assert!(names.contains(sample), "{sample} of {names:?}");
    }
    assert!(names.len() > 200, "{}", names.len());
    let missing: Vec<_> = names.iter().filter(|name| group_of(name).is_none()).collect();
    assert!(missing.is_empty(), "ZooKeeper has settings that the table lacks: {missing:?}");
    // And no name of the table is invented.
    let in_table = SETTINGS.iter().filter(|group| group.field != SettingField::Flag).flat_map(SettingGroup::names);
    let text: BTreeSet<String> = classes.iter().flat_map(|(_, class)| constants(class).0).collect();
    let known = |name: &str| {
        names.iter().any(|own| own == name || (name.ends_with('.') && own.starts_with(name)))
            || text.iter().any(|text| text == name || text == &format!("zookeeper.{name}"))
            // A provider of metrics reads its settings without the prefix.
            || name.strip_prefix("metricsProvider.").is_some_and(|name| text.contains(name))
    };
    let invented: Vec<_> = in_table.filter(|name| !known(name) && !ELSEWHERE.contains(name)).collect();
    assert!(invented.is_empty(), "no class of ZooKeeper has these settings: {invented:?}");
}

/// Which values of the table servers run with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The least ones. Some of them mean that something is off.
    Least,
    /// The least ones with which nothing is off.
    LeastOn,
    /// The most ones.
    Most,
}

/// A value that a user may choose for a setting, where no bound says it.
fn text(name: &str) -> &'static str {
    match name {
        "authProvider." => "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
        "watchManagerName" => "org.apache.zookeeper.server.watch.WatchManagerOptimized",
        "audit.impl.class" => "org.apache.zookeeper.audit.Slf4jAuditLogger",
        "ssl.protocol" | "ssl.enabledProtocols" => "TLSv1.3",
        "security.auth_to_local" => "DEFAULT",
        "metricsProvider." => "true",
        name if ["ssl.", "kerberos."].iter().any(|prefix| name.starts_with(prefix)) => "false",
        _ => "x",
    }
}

/// The value at a bound.
fn value(name: &str, value: SettingValue, bound: Bound) -> String {
    let number = match (name, value) {
        // On a busy machine a server needs time, and the others have to agree on it.
        ("tickTime", _) => 2_000,
        ("initLimit" | "connectToLearnerMasterLimit", _) => 30,
        ("syncLimit", _) => 5,
        ("minSessionTimeout", _) => 4_000,
        ("maxSessionTimeout", _) => 40_000,
        // mczk and the client of this test share an address, and have several connections.
        ("maxClientCnxns" | "maxCnxns", _) if bound == Bound::LeastOn => 10,
        (_, SettingValue::Number(least, most)) => match bound {
            Bound::Least => least,
            Bound::LeastOn => least.max(1),
            Bound::Most => most,
        },
        // The other bound stands above.
        (_, SettingValue::LimitOrNone(_)) => {
            if bound == Bound::Most {
                i32::MAX
            } else {
                0
            }
        }
        (_, SettingValue::Share) => return if bound == Bound::Most { "1" } else { "0.001" }.to_owned(),
        (_, SettingValue::Text) => return text(name).to_owned(),
        (_, SettingValue::Fixed(default)) => return default.to_string(),
        (_, SettingValue::OnceTrue) => return "true".to_owned(),
        (_, SettingValue::Boolean) => {
            let off = ["ssl.", "kerberos.", "fips", "require", "follower.s", "forward"];
            return (!off.iter().any(|prefix| name.starts_with(prefix))).to_string();
        }
    };
    number.to_string()
}

impl World {
    /// Chooses every setting that users may choose, at once.
    fn choose_all(&mut self, bound: Bound) {
        (self.zoo_cfg, self.jvm_flags) = (Vec::new(), Vec::new());
        for group in SETTINGS.iter().filter(|group| group.allowed != SettingUse::Refused) {
            for name in group.names().filter(|name| !name.starts_with("java.") && !name.starts_with("sun.")) {
                let value = value(name, group.value, bound);
                let name = if name.ends_with('.') { format!("{name}1") } else { name.to_owned() };
                let name = name.replace("metricsProvider.1", "metricsProvider.exportJvmInfo");
                match group.field {
                    SettingField::Flag => self.jvm_flags.push(format!("-D{name}={value}")),
                    SettingField::ZooCfg => self.zoo_cfg.push(entry(&name, &value)),
                }
            }
        }
    }
}

/// At both ends of the bounds a leader leads, others follow it, and servers that start again find what they wrote.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_leader_leads_with_every_allowed_setting_at_its_bounds() {
    let mut world = World::new("settings", false);
    let mut written = Vec::new();
    for bound in [Bound::Least, Bound::LeastOn, Bound::Most] {
        world.choose_all(bound);
        assert!(world.zoo_cfg.len() > 110, "{}", world.zoo_cfg.len());
        if !written.is_empty() {
            (1..=3).for_each(|n| world.kill(n));
        }
        for n in 1..=3 {
            world.assign(n, &bootstrap(3));
            world.start(n);
        }
        (1..=3).for_each(|n| drop(world.serving(n)));
        let name = format!("{bound:?}");
        world.write(1, &name).await;
        written.push(name);
        // The next leader reads from its disk.
        for n in 1..=3 {
            world.restart_zookeeper(n);
            world.serving(n);
            assert_eq!(world.missing(n, &written).await, Vec::<String>::new(), "{bound:?}, server {n}");
        }
    }
}

/// A limit below what the data needs is named, and the volume does not count as corrupt.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_limit_that_is_too_low_makes_no_volume_corrupt() {
    let mut world = World::new("limit", false);
    world.zoo_cfg = vec![entry("jute.maxbuffer", "4194304")];
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        world.start(n);
    }
    (1..=3).for_each(|n| drop(world.serving(n)));
    let long = vec![b'x'; 3_000_000];
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.client(1).await.create("/long", &long, &options).await.unwrap();
    assert_eq!(world.missing(3, &["long".to_owned()]).await, Vec::<String>::new());
    // From the log, and from a snapshot, which ZooKeeper writes at the first start.
    for round in ["log", "snapshot"] {
        let limit = std::mem::take(&mut world.zoo_cfg);
        (1..=3).for_each(|n| world.kill(n));
        for n in 1..=3 {
            world.assign(n, &bootstrap(3));
            world.start(n);
        }
        for n in 1..=3 {
            let report = world.until(&format!("server {n} names the limit, from the {round}"), || {
                world.report(n).filter(|report| {
                    assert!(!report.corrupt, "{report:?}");
                    matches!(&report.phase, Phase::Exited { reason } if reason.contains("set jute.maxbuffer in template.zooCfg to 30000"))
                })
            });
            assert!(!report.serving && !report.lost, "{report:?}");
        }
        (1..=3).for_each(|n| world.kill(n));
        world.zoo_cfg = limit;
        for n in 1..=3 {
            world.assign(n, &bootstrap(3));
            world.start(n);
        }
        for n in 1..=3 {
            world.serving(n);
            assert_eq!(world.client(n).await.get_data("/long").await.unwrap().0.len(), long.len());
        }
    }
}

/// A server that serves can turn away every client with TLS, and nothing but its port shows it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_server_says_that_it_turns_away_every_client_with_tls() {
    let mut world = World::new("tls", false);
    world.client_tls =
        Some(ClientTls { mode: ClientTlsMode::Optional, secret_name: "clients".into(), certificates: None });
    fs::create_dir_all(world.path(1, "clients")).unwrap();
    Authority::new().write_identity(&world.path(1, "clients"));
    for (name, setting, turned_away) in [
        ("ssl.ciphersuites", "TLS_AES_256_GCM_SHA384", None),
        ("ssl.ciphersuites", "TLS_AES_256_GCM_SHA512", Some("closes each connection")),
        ("ssl.enabledProtocols", "TLSv1.1", Some("closes each connection")),
        // The key of the certificate is of another kind.
        ("ssl.ciphersuites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some("closes each connection")),
        ("ssl.enabledProtocols", "TLSv1.2", None),
        // It cannot learn whether the certificate of a client was revoked.
        ("ssl.crl", "true", Some("refuses a certificate of its own authority")),
    ] {
        world.zoo_cfg = vec![entry(name, setting)];
        world.assign(1, &bootstrap(1));
        world.start(1);
        let what = format!("server 1 has asked its port for TLS, {name} {setting}");
        let report = world.until(&what, || world.report(1).filter(|report| report.serving && report.synced));
        let is_as_expected = |why: &String| turned_away.is_some_and(|part| why.contains(part));
        assert_eq!(report.turned_away.is_some(), turned_away.is_some(), "{what}: {report:?}");
        assert!(report.turned_away.iter().all(is_as_expected), "{what}: {report:?}");
        world.kill(1);
    }
}

#[test]
#[ignore = "needs ZooKeeper's jars: make test-zookeeper"]
fn a_former_version_does_not_start() {
    let mut world = World::new("former", false);
    world.home = world.folder.join("apache-zookeeper-3.8.4-bin");
    fs::create_dir_all(world.home.join("lib")).unwrap();
    fs::write(world.home.join("lib/zookeeper-3.8.4.jar"), "").unwrap();
    world.assign(1, &bootstrap(1));
    world.start(1);
    let refused =
        |phase: &Phase| matches!(phase, Phase::Exited { reason } if reason.contains("the image has ZooKeeper 3.8.4"));
    world.until("server 1 refuses the version", || world.report(1).filter(|report| refused(&report.phase)));
    assert!(!world.path(1, "data/active/conf/zoo.cfg").exists());
}
