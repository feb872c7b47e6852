//! Checks the structure of each crate in `src/`. `make lint` runs it in the root of the repository.
//!
//! Cargo checks that crates import one way. It cannot check:
//!
//! 1. [`imports`]: the files of one crate import each other without a circle.
//! 2. [`names`]: no type has the name of another one.
//! 3. [`broken`]: a rule asks for few broken variants, so that it reads without them.
//! 4. [`visibility`]: no item is more visible than its users need. rustc finds dead code in one crate, and sees no other.

mod broken;
mod imports;
mod names;
mod source;
mod visibility;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result};

use source::Source;

/// One crate of `src/`.
pub(crate) struct Crate {
    /// Its folder.
    pub(crate) name: String,
    /// Its files.
    pub(crate) sources: Vec<Source>,
}

fn main() -> Result<ExitCode> {
    let (mut crates, mut outside) = (Vec::new(), Vec::new());
    for folder in fs::read_dir("src").context("cannot read src")? {
        let folder = folder?;
        let (root, tests) = (folder.path().join("src"), folder.path().join("tests"));
        let mut sources = Vec::new();
        source::read(&root, &root, Path::new(""), &mut sources)?;
        if tests.is_dir() {
            source::read(&tests, &tests, Path::new(""), &mut outside)?;
        }
        crates.push(Crate { name: folder.file_name().to_string_lossy().into_owned(), sources });
    }
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    for folder in ["tests", "benches"] {
        // The names in this program are no uses.
        source::read(Path::new(folder), Path::new(folder), Path::new("tests/structure"), &mut outside)?;
    }
    let mut findings: Vec<String> = crates.iter().flat_map(|one| imports::findings(&one.sources)).collect();
    findings.extend(names::findings(crates.iter().flat_map(|one| &one.sources)));
    findings.extend(broken::findings(crates.iter().flat_map(|one| &one.sources)));
    findings.extend(visibility::findings(&crates, &outside));
    for finding in &findings {
        eprintln!("{finding}");
    }
    let files: usize = crates.iter().map(|one| one.sources.len()).sum();
    println!("structure: {} crates, {files} files, {} findings", crates.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
