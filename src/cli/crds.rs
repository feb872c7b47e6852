//! `mczk crds`: the CustomResourceDefinitions as YAML.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::error::Error;
use crate::api::crd;

/// What is printed, and where.
#[derive(Debug, Args)]
pub struct Crds {
    /// Write one file for each kind into this folder [default: print both]
    #[arg(long, env = "MCZK_CRDS_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    /// Prints the definitions, or writes their files and prints the files' names.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn run(self) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let Some(dir) = self.dir else {
            return Ok(out.write_all(crd::yaml()?.as_bytes()).context("cannot write to standard output")?);
        };
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        for (name, text) in crd::files()? {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "{}", path.display()).context("cannot write to standard output")?;
        }
        Ok(())
    }
}
