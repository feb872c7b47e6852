//! The tables of `mczk status`.

use k8s_openapi::jiff::Timestamp;

use crate::terminal::columns::{Cell, Tone, table};
use mczk_api::contract::conditions::ConditionType;
use mczk_rules::view::status::{ClusterView, EnsembleView, ServerView};

/// How tables are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// True for further columns.
    pub(crate) wide: bool,
    /// True for the column of namespaces.
    pub(crate) namespaces: bool,
    pub(crate) coloured: bool,
}

/// A table of ensembles, one a row.
pub(super) fn list(ensembles: &[EnsembleView], style: Style, now: Timestamp) -> String {
    let mut head = vec!["NAME", "READY", "SERVING", "ROLLOUT", "AGE"];
    if style.namespaces {
        head.insert(0, "NAMESPACE");
    }
    if style.wide {
        head.extend(["QUORUM SAFE", "LEADER", "IMAGE", "MESSAGE"]);
    }
    let rows = ensembles.iter().map(|ensemble| {
        let mut row = vec![
            Cell::plain(&ensemble.name),
            condition(ensemble, ConditionType::Ready),
            serving(ensemble),
            rollout(ensemble),
            Cell::plain(age(ensemble.created, now)),
        ];
        if style.namespaces {
            row.insert(0, Cell::plain(&ensemble.namespace));
        }
        if style.wide {
            row.push(condition(ensemble, ConditionType::QuorumSafe));
            row.extend([&ensemble.leader, &ensemble.image, &ensemble.message].map(|text| optional(text.as_deref())));
        }
        row
    });
    table(std::iter::once(title(&head)).chain(rows), style.coloured)
}

/// An ensemble with its clusters and servers, as a tree.
pub(crate) fn tree(ensemble: &EnsembleView, style: Style) -> String {
    let mut head = vec!["NAME", "READY", "SERVING", "STATE"];
    if style.wide {
        head.extend(["POD", "VERSION", "VOLUME", "REVISION"]);
    }
    head.push("MESSAGE");
    let mut rows = vec![title(&head), root(ensemble, style)];
    for (index, cluster) in ensemble.clusters.iter().enumerate() {
        let is_last = index + 1 == ensemble.clusters.len();
        let (branch, line) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        rows.push(cluster_row(cluster, branch, style));
        for (index, server) in cluster.servers.iter().enumerate() {
            let branch = if index + 1 == cluster.servers.len() { "└─ " } else { "├─ " };
            rows.push(server_row(server, &format!("{line}{branch}"), style));
        }
    }
    table(rows, style.coloured)
}

fn title(head: &[&str]) -> Vec<Cell> {
    head.iter().map(|text| Cell::title(text)).collect()
}

fn root(ensemble: &EnsembleView, style: Style) -> Vec<Cell> {
    let mut row = vec![
        Cell::plain(format!("{}/{}", ensemble.namespace, ensemble.name)),
        condition(ensemble, ConditionType::Ready),
        serving(ensemble),
        rollout(ensemble),
    ];
    if style.wide {
        row.extend([None, ensemble.image.as_deref(), None, ensemble.incarnation.as_deref()].map(optional));
    }
    row.push(optional(ensemble.message.as_deref()));
    row
}

fn cluster_row(cluster: &ClusterView, branch: &str, style: Style) -> Vec<Cell> {
    let state = cluster_state(cluster);
    let serving = format!("{}/{}", cluster.serving, cluster.desired);
    let tone = if cluster.serving < cluster.desired { Tone::Bad } else { Tone::Plain };
    let mut row =
        vec![Cell::plain(format!("{branch}{}", cluster.name)), truth(cluster.ready), Cell::new(serving, tone), state];
    if style.wide {
        row.extend([None, None, None, cluster.revision.as_deref()].map(optional));
    }
    row.push(Cell::plain(cluster.message.as_deref().unwrap_or_default()));
    row
}

/// Whether Karmada reaches the cluster, where its voters are if not at home, and its place in the record.
fn cluster_state(cluster: &ClusterView) -> Cell {
    let is_unreachable = cluster.reachable == Some(false);
    let verb = if cluster.servers.iter().any(|server| server.role == "voter") { "moves" } else { "moved" };
    let moved = cluster.moved_to.as_ref().map(|spare| format!("{verb} to {spare}"));
    match (is_unreachable, moved) {
        (true, None) => Cell::new("unreachable", Tone::Bad),
        (true, Some(moved)) => Cell::new(format!("unreachable, {moved}"), Tone::Bad),
        (false, Some(moved)) => Cell::new(moved, Tone::Unsure),
        (false, None) => optional(cluster.position),
    }
}

fn server_row(server: &ServerView, branch: &str, style: Style) -> Vec<Cell> {
    let name = Cell::plain(format!("{branch}{} {}", server.role, server.id));
    let report = server.report.as_ref();
    let mut row = match report {
        None => vec![name, Cell::new("Unknown", Tone::Unsure), Cell::plain("-"), Cell::plain("-")],
        Some(report) => {
            let state = optional(report.mode.as_deref());
            vec![name, truth(report.serving), Cell::plain(if report.serving { "1/1" } else { "0/1" }), state]
        }
    };
    if style.wide {
        let text = |field: Option<&String>| optional(field.map(String::as_str));
        row.push(text(report.and_then(|report| report.pod.as_ref())));
        row.push(text(report.and_then(|report| report.version.as_ref())));
        row.push(text(report.and_then(|report| report.volume.as_ref())));
        row.push(optional(None));
    }
    row.push(remark(server));
    row
}

/// What is unusual about a server.
fn remark(server: &ServerView) -> Cell {
    let Some(report) = &server.report else {
        return Cell::new("The agent does not report this server", Tone::Unsure);
    };
    if report.lost {
        return Cell::new("The volume of this server is lost or an old copy", Tone::Bad);
    }
    if report.serving && !report.synced {
        return Cell::new("Not in sync with the leader", Tone::Unsure);
    }
    Cell::default()
}

fn condition(ensemble: &EnsembleView, type_: ConditionType) -> Cell {
    match ensemble.status_of(type_) {
        Some("True") if !ensemble.current => Cell::new("True (old)", Tone::Unsure),
        Some("True") => truth(true),
        Some("False") => truth(false),
        other => Cell::new(other.unwrap_or("Unknown"), Tone::Unsure),
    }
}

fn truth(value: bool) -> Cell {
    if value { Cell::new("True", Tone::Good) } else { Cell::new("False", Tone::Bad) }
}

fn serving(ensemble: &EnsembleView) -> Cell {
    let voters = if ensemble.voters == 0 { usize::try_from(ensemble.replicas).unwrap_or(0) } else { ensemble.voters };
    let is_less = usize::try_from(ensemble.serving).unwrap_or(0) < voters;
    Cell::new(format!("{}/{voters}", ensemble.serving), if is_less { Tone::Bad } else { Tone::Plain })
}

fn rollout(ensemble: &EnsembleView) -> Cell {
    let tone = if ensemble.rollout.as_deref() == Some("Ready") { Tone::Plain } else { Tone::Unsure };
    Cell::new(ensemble.rollout.as_deref().unwrap_or("-"), tone)
}

fn optional(text: Option<&str>) -> Cell {
    Cell::plain(text.unwrap_or("-"))
}

/// The age of an object, in the largest unit that fits into it at least twice.
fn age(created: Option<Timestamp>, now: Timestamp) -> String {
    let Some(created) = created else { return "-".to_owned() };
    let seconds = now.duration_since(created).as_secs().max(0);
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let largest = units.into_iter().find(|(length, _)| seconds >= 2 * length);
    largest.map_or_else(|| format!("{seconds}s"), |(length, unit)| format!("{}{unit}", seconds / length))
}

#[cfg(test)]
mod tests;
