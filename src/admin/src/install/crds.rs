//! `mczk crds`: the CustomResourceDefinitions as YAML.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::terminal::error::Error;
use mczk_api::crd;

/// Prints the CustomResourceDefinitions of MultiClusterZooKeeper and ZooKeeper as YAML
///
/// `mczk register` applies the same definitions, so this is only needed to review or to store them.
#[derive(Debug, Args)]
pub struct Crds {
    /// Folder in which to write one file for each kind [default: none, print both]
    #[arg(long, env = "MCZK_CRDS_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    /// Prints the definitions, or writes the files and prints their names.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn run(self) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let Some(dir) = self.dir else {
            return Ok(out.write_all(crd::yaml()?.as_bytes()).context("cannot write to standard output")?);
        };
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        for (name, text) in crd::files()? {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "{}", path.display()).context("cannot write to standard output")?;
        }
        Ok(())
    }
}
