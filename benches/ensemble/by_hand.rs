//! ZooKeeper as a person starts it: for each server of mczk a pod beside it, in the same cluster, without `mczk server`.
//!
//! The image, the settings, the flags of the virtual machine, the certificates and the class of the disk are those of the
//! running server. Only the names of the servers differ. There is no parent process, no probe and no agent.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use e2e::{
    members::{Members, Server, writer::serves},
    patience::wait_for,
    scene::kind,
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use mczk_api::contract::pod_layout::{
    ACTIVE_DATA, CLIENT_PORT, DATA, ELECTION_PORT, KEYS, QUORUM_PORT, QUORUM_TLS, SCRATCH,
};
use mczk_rules::server::{jvm, paths::Paths};
use serde_json::{Value, json};

/// The longest time until all servers serve.
const START: Duration = Duration::from_secs(180);
/// The folder of the ConfigMap.
const CONFIG: &str = "/etc/by-hand";
/// Folders that a pod has in common with a server of mczk.
const FOLDERS: [&str; 4] = [DATA, SCRATCH, KEYS, QUORUM_TLS];

/// Starts an ensemble with these names; returns the addresses of its servers.
///
/// # Errors
/// If a server does not serve in time.
pub(crate) async fn start(members: &Members<'_>, namespace: &str, name: &str, of: &[Server]) -> Result<Vec<String>> {
    let host =
        |(server, id): (&Server, usize)| format!("{name}-{id}.{name}-{id}.{namespace}.svc.{}.local", server.cluster);
    let hosts: Vec<String> = of.iter().zip(1..).map(host).collect();
    let line = |(host, id): (&String, usize)| {
        format!("server.{id}={host}:{QUORUM_PORT}:{ELECTION_PORT}:participant;0.0.0.0:{CLIENT_PORT}")
    };
    let dynamic = hosts.iter().zip(1..).map(line).collect::<Vec<_>>().join("\n");
    let place = Place { members, namespace };
    let servers = of.iter().zip(&hosts).zip(1..).map(async |((server, host), id)| {
        let name = format!("{name}-{id}");
        let beside = Beside { id, name: &name, host, dynamic: &dynamic };
        place.start(server, &beside).await.with_context(|| name.clone())?;
        wait_for(&format!("{name} serves"), START, || place.serving(server, &name)).await
    });
    try_join_all(servers).await
}

/// Where the pods run.
struct Place<'a> {
    members: &'a Members<'a>,
    namespace: &'a str,
}

/// A server that runs beside one of mczk.
struct Beside<'a> {
    id: usize,
    name: &'a str,
    host: &'a str,
    dynamic: &'a str,
}

impl Place<'_> {
    async fn start(&self, of: &Server, beside: &Beside<'_>) -> Result<()> {
        let paths = paths();
        let read = async |what: &str| self.members.shell(self.namespace, of, what).await;
        let file = async |path: std::path::PathBuf| read(&format!("cat {}", path.display())).await;
        let java = read("tr '\\0' '\\n' </proc/$(pidof java)/cmdline").await?;
        let zoo_cfg = file(paths.zoo_cfg()).await?;
        let files = json!({
            "zoo.cfg": with_own_servers(&zoo_cfg, &paths.seed().display().to_string()),
            "zoo.cfg.dynamic": beside.dynamic,
            "java.security": file(paths.security_properties()).await?,
            "logback.xml": file(paths.logback()).await?,
        });
        let pod = serde_json::to_value(self.pods(of)?.get(&of.name).await?)?;
        let claim = json!({ "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": e2e::members::spec::FOLDERS.0,
            "resources": { "requests": { "storage": e2e::members::spec::FOLDERS.1 } },
        }});
        let service = json!({ "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true, "selector": { "by-hand": beside.name },
        }});
        self.create(of, beside.name, ("ConfigMap", "configmaps"), json!({ "data": files })).await?;
        self.create(of, beside.name, ("PersistentVolumeClaim", "persistentvolumeclaims"), claim).await?;
        self.create(of, beside.name, ("Service", "services"), service).await?;
        self.create(of, beside.name, ("Pod", "pods"), json!({ "spec": spec(&pod, beside, &java) })).await
    }

    async fn create(&self, of: &Server, name: &str, (singular, plural): (&str, &str), object: Value) -> Result<()> {
        let client = self.members.federation.members.get(&of.cluster).context("no such cluster")?.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, self.namespace, &kind("v1", singular, plural));
        let mut object: BTreeMap<String, Value> = serde_json::from_value(object)?;
        object.insert("metadata".to_owned(), json!({ "name": name, "labels": { "by-hand": name } }));
        api.create(&PostParams::default(), &serde_json::from_value(json!(object))?)
            .await
            .map(drop)
            .context(plural.to_owned())
    }

    /// The address of a server, once it serves.
    async fn serving(&self, of: &Server, name: &str) -> Result<String> {
        let status = self.pods(of)?.get(name).await?.status.unwrap_or_default();
        let address = status.pod_ip.with_context(|| format!("phase {:?}", status.phase))?;
        let address = format!("{address}:{CLIENT_PORT}");
        serves(&address).await?;
        Ok(address)
    }

    fn pods(&self, of: &Server) -> Result<Api<Pod>> {
        let client = self.members.federation.members.get(&of.cluster).context("no such cluster")?;
        Ok(Api::namespaced(client.clone(), self.namespace))
    }
}

/// The files of a server, at the same places as under mczk.
fn paths() -> Paths {
    Paths { active_data: ACTIVE_DATA.into(), scratch: KEYS.into(), address: [0, 0, 0, 0].into(), hosts: None }
}

/// `zoo.cfg` with another list of servers.
fn with_own_servers(zoo_cfg: &str, dynamic: &str) -> String {
    let own = format!("dynamicConfigFile={dynamic}");
    let settings = zoo_cfg.lines().filter(|line| !line.starts_with("dynamicConfigFile="));
    settings.chain([own.as_str(), ""]).collect::<Vec<_>>().join("\n")
}

/// The spec of a pod: what ZooKeeper needs of a pod of mczk. `java` has an argument in each line.
fn spec(of: &Value, beside: &Beside<'_>, java: &str) -> Value {
    let part = |path: &str| of.pointer(path).cloned().unwrap_or_default();
    let named = |list: &str, field: &str, wanted: &[&str]| -> Vec<Value> {
        let all = part(list).as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|one| one[field].as_str().is_some_and(|name| wanted.contains(&name))).collect()
    };
    let mut mounts = named("/spec/containers/0/volumeMounts", "mountPath", &FOLDERS);
    let mounted: Vec<&str> =
        mounts.iter().filter_map(|mount| mount["name"].as_str()).filter(|name| *name != "data").collect();
    let mut volumes = named("/spec/volumes", "name", &mounted);
    volumes.push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": beside.name } }));
    volumes.push(json!({ "name": "config", "configMap": { "name": beside.name } }));
    mounts.push(json!({ "name": "config", "mountPath": CONFIG }));
    // The file of flags holds the digest of mczk's own user.
    let arguments = java.lines().filter(|argument| !argument.starts_with('@') && !argument.is_empty());
    let command: Vec<String> =
        ["sh", "-c", &script(beside), "sh"].into_iter().chain(arguments).map(str::to_owned).collect();
    json!({
        "hostname": beside.name,
        "subdomain": beside.name,
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "dnsConfig": part("/spec/dnsConfig"),
        "securityContext": part("/spec/securityContext"),
        "containers": [{
            "name": "zookeeper",
            "image": part("/spec/containers/0/image"),
            "command": command,
            "env": [{ "name": jvm::RESOLVER_OPTIONS, "value": jvm::ONE_ATTEMPT }],
            "resources": part("/spec/containers/0/resources"),
            "securityContext": part("/spec/containers/0/securityContext"),
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    })
}

/// Puts the files where `zoo.cfg` expects them, and becomes ZooKeeper. A server must not start before its name resolves.
fn script(Beside { id, host, .. }: &Beside<'_>) -> String {
    let paths = paths();
    let [conf, data, trust, identity] = [paths.conf(), paths.data(), paths.quorum_trust(), paths.quorum_identity()]
        .map(|path| path.display().to_string());
    format!(
        "set -e\n\
         mkdir -p {conf} {data}\n\
         cp {CONFIG}/zoo.cfg {CONFIG}/zoo.cfg.dynamic {conf}/\n\
         cp {CONFIG}/java.security {CONFIG}/logback.xml {KEYS}/\n\
         cat {QUORUM_TLS}/tls.key {QUORUM_TLS}/tls.crt >{identity}\n\
         cp {QUORUM_TLS}/ca.crt {trust}\n\
         echo {id} >{data}/myid\n\
         touch {data}/initialize\n\
         until nslookup -type=a {host} >/dev/null; do sleep 1; done\n\
         exec \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_list_of_servers_differs() {
        let zoo_cfg = "#Tue Dec 01\ntickTime=2000\ndynamicConfigFile=/data/zoo.cfg.dynamic.100000000\nsslQuorum=true\n";
        assert_eq!(
            with_own_servers(zoo_cfg, "/d"),
            "#Tue Dec 01\ntickTime=2000\nsslQuorum=true\ndynamicConfigFile=/d\n"
        );
    }
}
