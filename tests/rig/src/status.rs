//! The state of a rig.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write as _};

use anyhow::{Context, Result};

use crate::api::Api;
use crate::control_plane::KARMADA;
use crate::join::{Joined, joined};
use crate::layout::{Layout, State};

/// One component of a rig.
#[derive(Clone, Debug)]
pub struct ComponentStatus {
    /// The name for `rig stop` and similar commands: `karmada-scheduler`, `m2/apiserver`.
    pub name: String,
    /// The process number, if it runs.
    pub pid: Option<i32>,
    /// True if a command stopped it.
    pub stopped: bool,
    /// The number of restarts.
    pub restarts: u32,
    /// The age of its process, in seconds.
    pub seconds: i64,
    /// The end of its last process, if one has ended.
    pub last_end: Option<String>,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The name for `rig exec` and `rig stop-node`.
    pub name: String,
    /// True if its API server reports it Ready. False if the API server does not answer.
    pub ready: bool,
}

/// The state of a rig.
#[derive(Clone, Debug)]
pub struct Status {
    /// All components, by name.
    pub components: Vec<ComponentStatus>,
    /// All member clusters. If Karmada does not list one, its reason is `NotJoined`.
    pub members: Vec<Joined>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

impl Status {
    /// True if all components run, and all member clusters and nodes are Ready.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.components.iter().all(|c| c.pid.is_some())
            && self.members.iter().all(|m| m.ready)
            && self.nodes.iter().all(|n| n.ready)
    }
}

pub(crate) async fn status(layout: &Layout, state: &State) -> Result<Status> {
    let record =
        layout.read_record()?.with_context(|| format!("no supervisor's record in {}", layout.dir.display()))?;
    let now = jiff::Timestamp::now().as_second();
    let components = record
        .components
        .into_iter()
        .map(|(name, activity)| {
            let pid = activity.process.filter(crate::identity::Identity::lives).map(|p| p.pid);
            ComponentStatus {
                name,
                pid,
                stopped: !activity.wanted,
                restarts: activity.starts.saturating_sub(1),
                seconds: pid.map_or(0, |_| now - activity.since),
                last_end: activity.last_end,
            }
        })
        .collect();
    let api = Api::of(&layout.kubeconfig(KARMADA)).await?;
    let listed = joined(&api).await;
    let members = state
        .names()
        .into_iter()
        .map(|name| {
            let missing = |reason: &str| Joined {
                name: name.clone(),
                mode: "-".into(),
                ready: false,
                leaves: false,
                reason: reason.into(),
            };
            match &listed {
                Ok(all) => all.iter().find(|c| c.name == name).cloned().unwrap_or_else(|| missing("NotJoined")),
                Err(_) => missing("KarmadaDoesNotAnswer"),
            }
        })
        .collect();
    Ok(Status { components, members, nodes: nodes(layout, state).await })
}

async fn nodes(layout: &Layout, state: &State) -> Vec<NodeStatus> {
    let mut all = vec![];
    let mut ready = BTreeSet::new();
    for node in state.nodes() {
        if node.is_first()
            && let Ok(api) = Api::of(&layout.kubeconfig(&node.cluster)).await
            && let Ok(list) = api.get(crate::nodes::NODES).await
        {
            ready.extend(crate::nodes::ready(&list));
        }
        all.push(NodeStatus { ready: ready.contains(&node.name), name: node.name });
    }
    all
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let head = ["COMPONENT", "STATE", "PID", "RESTARTS", "SECONDS", "LAST END"];
        let mut rows = vec![head.map(str::to_owned)];
        for c in &self.components {
            let state = match (c.pid, c.stopped) {
                (Some(_), _) => "running",
                (None, true) => "stopped",
                (None, false) => "DOWN",
            };
            rows.push([
                c.name.clone(),
                state.to_owned(),
                c.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                c.restarts.to_string(),
                c.pid.map_or_else(|| "-".to_owned(), |_| c.seconds.to_string()),
                c.last_end.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        table(f, &rows)?;
        writeln!(f)?;
        let mut rows = vec![["MEMBER", "MODE", "READY", "REASON"].map(str::to_owned)];
        for m in &self.members {
            let ready = if m.ready { "True" } else { "False" };
            rows.push([m.name.clone(), m.mode.clone(), ready.to_owned(), m.reason.clone()]);
        }
        table(f, &rows)?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let mut rows = vec![["NODE", "READY"].map(str::to_owned)];
        rows.extend(self.nodes.iter().map(|n| [n.name.clone(), if n.ready { "True" } else { "False" }.to_owned()]));
        table(f, &rows)
    }
}

fn table<const N: usize>(f: &mut Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            write!(line, "{cell:<width$}  ", width = width(column))?;
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_a_component_that_is_down_stands_out() {
        let component = |name: &str, pid, stopped| ComponentStatus {
            name: name.into(),
            pid,
            stopped,
            restarts: 0,
            seconds: 7,
            last_end: None,
        };
        let status = Status {
            components: vec![
                component("etcd", Some(12), false),
                component("m2/apiserver", None, true),
                component("x", None, false),
            ],
            members: vec![],
            nodes: vec![],
        };
        assert!(!status.healthy());
        let text = status.to_string();
        let lines: Vec<_> = text.lines().take(4).collect();
        assert_eq!(
            lines,
            [
                "COMPONENT     STATE    PID  RESTARTS  SECONDS  LAST END",
                "etcd          running  12   0         7        -",
                "m2/apiserver  stopped  -    0         -        -",
                "x             DOWN     -    0         -        -",
            ]
        );
    }
}
