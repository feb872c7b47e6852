//! Two versions of mczk in one federation, as during an upgrade.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::federation::Federation;

/// The image of the other version.
const OTHER_IMAGE: &str = "docker.io/library/mczk:other";

/// A part of mczk with a version of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The operator, with the webhook.
    Operator,
    /// The agents of all clusters.
    Agents,
    /// The parent processes of the servers. Another version restarts every server.
    Servers,
}

/// All parts.
pub const PARTS: [Part; 3] = [Part::Operator, Part::Agents, Part::Servers];

/// The versions that run.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// The other program, if there is one.
    program: Option<PathBuf>,
    /// The parts that run the other program.
    other: Vec<Part>,
}

impl Versions {
    /// True if a part runs the other program.
    #[must_use]
    pub fn is_other(&self, part: Part) -> bool {
        self.other.contains(&part)
    }

    /// The operator's program. `first` is the first version.
    #[must_use]
    pub fn operator<'v>(&'v self, first: &'v Path) -> &'v Path {
        self.program.as_deref().filter(|_| self.is_other(Part::Operator)).unwrap_or(first)
    }

    /// The operator's flags for the servers' version.
    #[must_use]
    pub fn server_image(&self) -> Option<[String; 2]> {
        self.is_other(Part::Servers).then(|| ["--server-image".to_owned(), OTHER_IMAGE.to_owned()])
    }
}

impl Federation {
    /// Makes another program known to all nodes.
    ///
    /// # Errors
    /// If a node does not take its image.
    pub async fn add_version(&self, program: &Path) -> Result<()> {
        self.rig.import_mczk(program, OTHER_IMAGE).await?;
        self.versions().program = Some(program.to_owned());
        Ok(())
    }

    /// The image of the agents.
    #[must_use]
    pub fn agent_image(&self) -> &'static str {
        if self.versions().is_other(Part::Agents) { OTHER_IMAGE } else { rig::MCZK }
    }

    /// Changes the version of a part; returns true if it runs the other program now.
    ///
    /// # Errors
    /// If there is no other program, or the part does not start.
    pub async fn switch(&self, part: Part) -> Result<bool> {
        let is_other = {
            let mut versions = self.versions();
            versions.program.as_ref().context("there is no other version: name one with --other-mczk")?;
            let is_other = !versions.is_other(part);
            versions.other.retain(|other| *other != part);
            versions.other.extend(is_other.then_some(part));
            is_other
        };
        if part == Part::Agents {
            self.register_agents(self.agent_image()).await?;
        } else {
            self.restart_operator().await?;
        }
        Ok(is_other)
    }
}
