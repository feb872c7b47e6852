//! The loss of Karmada's data, and the return of an older copy. Member clusters keep everything, as in a real loss.
//!
//! Karmada's data are the keys of its API servers in etcd, which other API servers may share. They are read and written through
//! etcd's JSON gateway.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::api::Api;
use crate::control;
use crate::control_plane::{KARMADA, Plan};
use crate::layout::write;
use crate::progress::Progress;

/// The prefixes of the keys of Karmada's API servers: see [`Plan::etcd_flags`].
const PREFIXES: [&str; 2] = ["karmada", "karmada-aggregated"];

/// Clients first, so that none of them acts upon half of the data.
const COMPONENTS: [&str; 6] = [
    "karmada-scheduler",
    "karmada-controller-manager",
    "karmada-webhook",
    "karmada-kube-controller-manager",
    "karmada-aggregated-apiserver",
    "karmada-apiserver",
];

/// The most keys that are written in one request. etcd takes 128.
const MOST_KEYS: usize = 100;
/// The most bytes of their values. etcd takes requests of 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;

/// The keys of a prefix, as etcd's gateway names a range.
fn range(prefix: &str) -> Value {
    json!({ "key": encoded(&format!("/{prefix}/")), "range_end": encoded(&format!("/{prefix}0")) })
}

fn encoded(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// The pairs in groups that etcd takes in one request. A larger pair is alone.
fn batches(pairs: &[Value]) -> Vec<Vec<&Value>> {
    let size = |pair: &Value| pair.get("value").and_then(Value::as_str).map_or(0, str::len);
    let (mut all, mut bytes) = (vec![], 0);
    let mut last: Vec<&Value> = vec![];
    for pair in pairs {
        if !last.is_empty() && (last.len() == MOST_KEYS || bytes + size(pair) > MOST_BYTES) {
            all.push(std::mem::take(&mut last));
            bytes = 0;
        }
        bytes += size(pair);
        last.push(pair);
    }
    all.push(last);
    all
}

impl Plan {
    fn etcd_of_karmada(&self) -> Result<Api> {
        Api::plain(&self.etcd_url(&self.karmada()))
    }

    /// Writes all of Karmada's data into a file.
    pub(crate) async fn copy_karmada(&self, file: &Path) -> Result<()> {
        let etcd = self.etcd_of_karmada()?;
        let mut all = vec![];
        for prefix in PREFIXES {
            let mut answer = etcd.post("/v3/kv/range", &range(prefix)).await?;
            let keys = answer.get_mut("kvs").and_then(Value::as_array_mut).context("etcd has no data of Karmada")?;
            all.extend(keys.iter().map(|pair| json!({ "key": pair.get("key"), "value": pair.get("value") })));
        }
        write(file, &serde_json::to_vec(&all)?)
    }

    /// Stops Karmada and its agents, and deletes all of its data.
    pub(crate) async fn lose_karmada(&self) -> Result<()> {
        let agents = self.state.pull.iter().map(|member| format!("{member}/karmada-agent"));
        for component in agents.chain(COMPONENTS.map(str::to_owned)) {
            control::stop(&self.layout, &component).await?;
        }
        for prefix in PREFIXES {
            self.etcd_of_karmada()?.post("/v3/kv/deleterange", &range(prefix)).await?;
        }
        Ok(())
    }

    /// Starts a new Karmada in the place of a lost one, and joins all member clusters again.
    pub(crate) async fn rebuild_karmada(&self) -> Result<()> {
        self.launch(&self.apiserver(&self.karmada())?)?;
        self.start_karmada(&Progress::new(true)).await?;
        for member in self.members() {
            self.join(&member).await?;
        }
        self.wait_members_ready().await
    }

    /// Starts Karmada again with the data of a file.
    pub(crate) async fn restore_karmada(&self, file: &Path) -> Result<()> {
        let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let pairs: Vec<Value> = serde_json::from_slice(&text)?;
        ensure!(!pairs.is_empty(), "{} holds no data of Karmada", file.display());
        let etcd = self.etcd_of_karmada()?;
        // One by one, thousands of keys take minutes on a busy machine.
        for together in batches(&pairs) {
            let puts: Vec<Value> = together.into_iter().map(|pair| json!({ "requestPut": pair })).collect();
            etcd.post("/v3/kv/txn", &json!({ "success": puts })).await?;
        }
        for component in COMPONENTS.iter().rev() {
            control::start(&self.layout, component).await?;
            if *component == "karmada-apiserver" {
                Api::of(&self.layout.kubeconfig(KARMADA)).await?.wait_ready("karmada-apiserver").await?;
            }
        }
        for member in &self.state.pull {
            control::start(&self.layout, &format!("{member}/karmada-agent")).await?;
        }
        self.wait_members_ready().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_pair_and_what_etcd_takes() {
        let pair =
            |number: usize| json!({ "key": number, "value": "x".repeat(if number % 50 == 7 { 400_000 } else { 900 }) });
        let pairs: Vec<Value> = (0..730).map(pair).collect();
        let all = batches(&pairs);
        assert!(all.iter().all(|batch| batch.len() <= MOST_KEYS && serde_json::to_vec(batch).unwrap().len() < 3 << 19));
        assert_eq!(all.concat(), pairs.iter().collect::<Vec<_>>());
    }
}
