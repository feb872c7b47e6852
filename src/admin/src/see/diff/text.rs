//! The text of `mczk diff`.

use super::view::{ClusterDiff, DiffView};
use crate::terminal::{
    columns::{Cell, Tone, table},
    field_changes::line,
    findings_text,
};

pub(super) fn text(view: &DiffView, coloured: bool) -> String {
    let DiffView { namespace, name, creates, fields, clusters, karmada_divides, findings } = view;
    let head = match (creates, fields.is_empty()) {
        (true, _) => "would be created",
        (false, true) => "would not change",
        (false, false) => "would change",
    };
    let mut parts = vec![format!("{namespace}/{name} {head}.\n")];
    if !fields.is_empty() && !creates {
        parts.push(fields.iter().fold(String::new(), |text, field| text + "  " + &line(field) + "\n"));
    }
    if clusters.is_empty() {
        parts.push("No server joins, leaves or restarts.\n".to_owned());
    } else {
        parts.push(servers(clusters, coloured));
        parts.push(summary(clusters));
    }
    if *karmada_divides {
        parts.push(
            "Karmada's scheduler divides the voters: the numbers after the rollout are its decision.\n".to_owned(),
        );
    }
    if !findings.is_empty() {
        parts.push(format!(
            "Right after the apply the operator would report:\n{}",
            findings_text::text(findings, coloured)
        ));
    }
    parts.join("\n")
}

fn servers(clusters: &[ClusterDiff], coloured: bool) -> String {
    let head = ["CLUSTER", "VOTERS", "OBSERVERS", "RESTARTS"].map(Cell::title).to_vec();
    let rows = clusters.iter().map(|cluster| {
        vec![
            Cell::plain(&cluster.name),
            change(cluster.voters_before, cluster.voters_after),
            change(cluster.observers_before, cluster.observers_after),
            Cell::new(cluster.restarted.to_string(), if cluster.restarted > 0 { Tone::Unsure } else { Tone::Plain }),
        ]
    });
    table(std::iter::once(head).chain(rows), coloured)
}

fn change(before: i32, after: i32) -> Cell {
    if before == after {
        return Cell::plain(before.to_string());
    }
    Cell::new(format!("{before} -> {after}"), Tone::Unsure)
}

fn summary(clusters: &[ClusterDiff]) -> String {
    let sum = |count: fn(&ClusterDiff) -> i32| clusters.iter().map(count).sum::<i32>();
    let joins = sum(|c| (c.voters_after - c.voters_before).max(0) + (c.observers_after - c.observers_before).max(0));
    let leaves = sum(|c| (c.voters_before - c.voters_after).max(0) + (c.observers_before - c.observers_after).max(0));
    format!("Servers that join: {joins}; that leave: {leaves}; that restart: {}.\n", sum(|c| c.restarted))
}
