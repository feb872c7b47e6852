//! `mczk man`: manual pages, for packages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use mczk_admin::terminal::error::Error;

/// Writes a manual page for each subcommand
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages; it is created if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Man {
    /// Writes the pages of `commands`.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub(crate) fn run(&self, commands: clap::Command) -> Result<(), Error> {
        let folder = &self.folder;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let written = clap_mangen::generate_to(commands, folder);
        Ok(written.with_context(|| format!("cannot write to {}", folder.display()))?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_subcommand_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        Man { folder: folder.path().to_owned() }.run(Cli::command()).unwrap();
        let page = fs::read_to_string(folder.path().join("mczk-status.1")).unwrap();
        assert!(folder.path().join("mczk.1").exists() && page.contains("all\\-namespaces"), "{page}");
    }
}
