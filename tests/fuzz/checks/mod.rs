//! What must hold for any bytes. Each fuzz target checks one of [`TARGETS`]; `tests/fuzz_corpus.rs` checks all of them with
//! the corpus and with simple changes of it.

mod files;
mod oracle;
mod properties;
mod webhook;

/// A check of any bytes. It panics if it finds a defect.
pub type Check = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Check); 11] = [
    ("question", webhook::question),
    ("interpret_replica", |data| webhook::operation("InterpretReplica", data)),
    ("revise_replica", |data| webhook::operation("ReviseReplica", data)),
    ("aggregate_status", |data| webhook::operation("AggregateStatus", data)),
    ("interpret_health", |data| webhook::operation("InterpretHealth", data)),
    ("interpret_dependency", |data| webhook::operation("InterpretDependency", data)),
    ("control_port", files::control_port),
    ("zoo_cfg", files::zoo_cfg),
    ("dynamic_configuration", files::dynamic_configuration),
    ("certificates", files::certificates),
    ("owner", files::owner),
];

/// Checks one target. Not every user of this module has one.
#[allow(dead_code)]
pub fn check(target: &str, data: &[u8]) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    check(data);
}
