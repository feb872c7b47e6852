//! The steps of an installation: each object is written, or compared, and printed.

use kube::Client;

use crate::{
    register::{
        Object,
        apply::{self, Change, Rehearsal},
    },
    terminal::{
        error::Error,
        field_changes::{field_changes, line},
        output::print,
    },
};

/// Width of the longest change.
const WIDTH: usize = 9;

/// Writes objects and prints what became of each.
pub(super) struct InstallSteps {
    dry_run: bool,
    quiet: bool,
    differs: bool,
    /// Of the control plane of the present step.
    rehearsal: Rehearsal,
}

impl InstallSteps {
    /// With `dry_run` it prints the differences and writes nothing.
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, quiet: false, differs: false, rehearsal: Rehearsal::default() }
    }

    /// It prints and writes nothing, and fails if an API server would refuse one of the writes.
    pub(super) fn rehearsal() -> Self {
        Self { quiet: true, ..Self::new(true) }
    }

    /// True if nothing is written.
    pub(super) const fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// True if an object was created, changed or removed, or would be.
    pub(super) const fn differs(&self) -> bool {
        self.differs
    }

    /// Begins a step, whose objects belong to one control plane.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn begin(&mut self, title: &str) -> Result<(), Error> {
        self.rehearsal = Rehearsal::default();
        self.say(title)
    }

    /// Prints a line.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn say(&self, line: &str) -> Result<(), Error> {
        if self.quiet { Ok(()) } else { print(&format!("{line}\n")) }
    }

    /// Writes an object.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn apply(&mut self, client: &Client, object: &Object) -> Result<(), Error> {
        if !self.dry_run {
            let change = apply::apply(client, object).await?;
            return self.report(&change, object);
        }
        let (change, before, after) = self.rehearsal.apply(client, object).await?;
        self.report(&change, object)?;
        // The content of a Secret stays secret, and all fields of a new object are new.
        if change == Change::Changed && object.resource.kind != "Secret" {
            for field in field_changes(before.as_ref(), Some(&after)) {
                self.say(&format!("  {:WIDTH$}  {}", "", line(&field)))?;
            }
        }
        Ok(())
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn remove(&mut self, client: &Client, object: &Object) -> Result<(), Error> {
        let change =
            if self.dry_run { apply::would_remove(client, object).await } else { apply::remove(client, object).await };
        let change = change?;
        if change == Change::Absent { Ok(()) } else { self.report(&change, object) }
    }

    /// Prints a change that the caller has made.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn report(&mut self, change: &Change, object: &Object) -> Result<(), Error> {
        self.differs |= matches!(change, Change::Created | Change::Changed | Change::Removed);
        let text = if self.dry_run { planned(change) } else { change.to_string() };
        self.say(&format!("  {text:WIDTH$}  {} {}", object.resource.kind, object.name()))
    }
}

/// A change that a dry run does not make.
fn planned(change: &Change) -> String {
    match change {
        Change::Created => "create".to_owned(),
        Change::Changed => "change".to_owned(),
        Change::Removed => "remove".to_owned(),
        Change::Unchanged | Change::Absent | Change::Left(_) => change.to_string(),
    }
}
