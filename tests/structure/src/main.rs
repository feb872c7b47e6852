//! Checks the structure of `src/`. `make lint` runs it in the root of the repository.
//!
//! 1. [`imports`]: imports point one way, between folders and between files.
//! 2. [`names`]: no type has the name of another one.
//! 3. [`visibility`]: no item is more visible than its users need. So rustc finds dead code.

mod imports;
mod names;
mod source;
mod visibility;

use std::{path::Path, process::ExitCode};

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let (mut sources, mut outside) = (Vec::new(), Vec::new());
    source::read(Path::new("src"), Path::new("src"), Path::new(""), &mut sources)?;
    for folder in ["tests", "benches"] {
        // The names in this program are no uses.
        source::read(Path::new(folder), Path::new(folder), Path::new("tests/structure"), &mut outside)?;
    }
    let mut findings = imports::findings(&sources);
    findings.extend(names::findings(&sources));
    findings.extend(visibility::findings(&sources, &outside));
    for finding in &findings {
        eprintln!("{finding}");
    }
    println!("structure: {} files, {} findings", sources.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
