//! What a server reads from agents and from its volume, and the certificates of the webhook.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use mczk_api::{
    contract::{
        control_api::{Reconfiguration, RestartLock, ServerConfig},
        server_list,
    },
    zookeeper::Ensemble,
};
use mczk_rules::server::{
    dynamic_configuration::{self, ClientAddress},
    jvm,
    paths::Paths,
    permitted_step::{self, Committed},
    zoo_cfg,
};
use mczk_runtime::{pki, tls};
use mczk_server::volume::Volume;
use serde_json::Value;

use super::properties;

fn paths(root: &Path) -> Paths {
    Paths {
        active_data: root.join("active"),
        scratch: root.join("scratch"),
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        hosts: None,
    }
}

/// Bodies of the control port: a server list with its hash, a step, a lock.
pub fn control_port(data: &[u8]) {
    if let Ok(list) = serde_json::from_slice::<Ensemble>(data)
        && let Ok(hashed) = server_list::with_hash(list)
    {
        let text = serde_json::to_string(&hashed).expect("a list is JSON");
        let value: Value = serde_json::from_str(&text).expect("a list is JSON");
        let hash = hashed.hash.clone().expect("a hash");
        assert_eq!(server_list::hash_of(&value).ok(), Some(hash), "{text}");
        let again: Ensemble = serde_json::from_str(&text).expect("a list reads itself");
        assert_eq!(server_list::with_hash(again).expect("a hash").hash, hashed.hash, "{text}");
    }
    let committed = Committed { list: None, voters: &BTreeSet::from([1, 2, 3]), locked: Some(2), leads: None };
    let (step, rest) = data.split_at(data.len() / 2);
    for (step, list) in [(data, None), (step, serde_json::from_slice::<Ensemble>(rest).ok())] {
        if let Ok(step) = serde_json::from_slice::<Reconfiguration>(step)
            && list.is_none()
        {
            assert!(permitted_step::check(&step, committed).is_err(), "without a published list no step is permitted");
        } else if let (Ok(step), Some(list)) = (serde_json::from_slice::<Reconfiguration>(step), list) {
            let _ = permitted_step::check(&step, Committed { list: Some(&list), ..committed });
        }
    }
    if let Ok(lock) = serde_json::from_slice::<RestartLock>(data) {
        let text = serde_json::to_vec(&lock).expect("a lock is JSON");
        assert_eq!(serde_json::from_slice::<RestartLock>(&text).ok(), Some(lock));
    }
}

/// Settings of users: whatever they are, those of the operator stand, and each user's setting has its own value.
pub fn zoo_cfg(data: &[u8]) {
    let Ok(config) = serde_json::from_slice::<ServerConfig>(data) else { return };
    let paths = paths(Path::new("/data"));
    let plain = ServerConfig { zoo_cfg: Vec::new(), ..config.clone() };
    let dynamic = Path::new("/data/dynamic");
    let own = zoo_cfg::zoo_cfg(&paths, &plain, dynamic).expect("there is no setting of a user");
    let _ = jvm::jvm_flags(&paths, &config);
    let Ok(text) = zoo_cfg::zoo_cfg(&paths, &config, dynamic) else { return };
    let ((own, _), (all, replaced)) = (properties::parse(&own), properties::parse(&text));
    assert_eq!(replaced, 0, "{text}");
    for (name, value) in &own {
        let overridden = config.zoo_cfg.iter().any(|entry| &entry.name == name);
        assert!(overridden || all.get(name) == Some(value), "{name} in {text}");
    }
    for name in all.keys() {
        assert!(own.contains_key(name) || config.zoo_cfg.iter().any(|entry| &entry.name == name), "{name} in {text}");
    }
}

/// A dynamic configuration that is read and written again says the same.
pub fn dynamic_configuration(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(read) = dynamic_configuration::parse(text) else { return };
    for address in [ClientAddress::Any, ClientAddress::Loopback] {
        let written = dynamic_configuration::seed(&read.servers, address);
        let again = dynamic_configuration::parse(&written).expect("a configuration reads itself");
        assert_eq!(again.servers, read.servers, "{written} of {text}");
        for server in &read.servers {
            if let Some(changed) = dynamic_configuration::with_client_address(text, server.id, address) {
                assert!(dynamic_configuration::parse(&changed).is_some(), "{changed} of {text}");
            }
        }
    }
}

/// A certificate and its key, and the ends of certificates.
pub fn certificates(data: &[u8]) {
    let middle = data.windows(4).position(|bytes| bytes == b"\n--\n").unwrap_or(data.len() / 2);
    let (certificate, key) = data.split_at(middle);
    let served = tls::is_pair(certificate, key.strip_prefix(b"\n--\n").unwrap_or(key));
    if let Ok(text) = str::from_utf8(certificate) {
        let (end, count) = (pki::not_after(text).ok(), pki::validities(text).len());
        assert!(!served || end.is_some() && count > 0, "{text}");
    }
}

/// The files of a volume: its owner, its list, and the numbers of ZooKeeper. Each ends with a line `--`.
pub fn owner(data: &[u8]) {
    let root = folder();
    let paths = paths(&root);
    let files =
        ["active/owner.json", "active/server-list.json", "active/data/myid", "active/data/version-2/acceptedEpoch"];
    let mut rest = data;
    for file in files {
        let end = rest.windows(4).position(|bytes| bytes == b"\n--\n");
        let (text, next) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + 4..]));
        fs::write(root.join(file), text).expect("a file");
        rest = next;
    }
    // A volume whose owner cannot be read is an error: it must not count as new.
    let stored = Volume::new(root, paths).stored();
    assert!(!matches!(stored, Ok(None)), "{data:?}");
}

/// A folder for this process, with the folders of a volume.
fn folder() -> PathBuf {
    let root = std::env::temp_dir().join(format!("mczk-fuzz-{}", std::process::id()));
    fs::create_dir_all(root.join("active/data/version-2")).expect("a folder");
    root
}
