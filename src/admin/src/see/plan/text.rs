//! The text of `mczk plan`.

use super::view::{PlanView, WriteView};
use crate::terminal::{field_changes::line, findings_text, steps_text};
use mczk_rules::rollout::object_change::Verb;

pub(super) fn text(view: &PlanView, coloured: bool) -> String {
    let PlanView { namespace, name, generation, status, writes, events, waits, steps, requeue_seconds } = view;
    let mut parts = Vec::new();
    if view.writes_something() {
        parts.push(format!("{namespace}/{name}, generation {generation}: the operator would write, in this order:\n"));
    } else {
        parts.push(format!("{namespace}/{name}, generation {generation}: the operator would write nothing.\n"));
    }
    if !status.is_empty() {
        parts.push(block(&format!("update the status of MultiClusterZooKeeper {name}"), status.iter().map(line)));
    }
    parts.extend(writes.iter().map(write));
    if !events.is_empty() {
        parts.push(block("publish events", events.iter().cloned()));
    }
    if waits.is_empty() {
        parts.push("Nothing waits.\n".to_owned());
    } else {
        parts.push(format!("After that:\n{}", findings_text::text(waits, coloured)));
    }
    if !steps.is_empty() {
        parts.push(steps_text::text(steps, coloured));
    }
    if let Some(seconds) = requeue_seconds {
        parts.push(format!("Without a change the operator decides again in {seconds} s.\n"));
    }
    parts.join("\n")
}

fn write(write: &WriteView) -> String {
    let WriteView { verb, kind, name, fields } = write;
    let verb = match verb {
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Delete => "delete",
    };
    block(&format!("{verb} {kind} {name}"), fields.iter().map(line))
}

fn block(title: &str, lines: impl Iterator<Item = String>) -> String {
    lines.fold(format!("{title}\n"), |text, line| text + "  " + &line + "\n")
}
