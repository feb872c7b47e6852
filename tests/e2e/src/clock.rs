//! A wrong clock for the operator.
//!
//! The library `libfaketime` answers a program's questions for the time of day; timeouts keep the true time. It cannot enter
//! a static program, so this operator is the dynamic program that Cargo builds beside this one.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::federation::Federation;

/// The folders of the system's libraries: one of them is the machine's architecture.
const LIBRARIES: &str = "/usr/lib";
/// The library, in one of these folders.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The first arguments of `env`, to run an operator whose clock is wrong by an offset, such as `-2d`.
///
/// # Errors
/// If the library is not installed.
pub fn environment(offset: &str) -> Result<Vec<String>> {
    let program = std::env::current_exe()?.with_file_name("mczk");
    let folders = fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
    let mut libraries = folders.map(|folder| folder.path().join(LIBRARY)).filter(|library: &PathBuf| library.exists());
    let library = libraries.next().context("libfaketime is not installed: `make chaos` installs it")?;
    Ok(vec![
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME={offset}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        program.display().to_string(),
    ])
}

impl Federation {
    /// Starts the operator again, with a clock that is wrong by an offset, or right.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn set_clock(&self, offset: Option<&'static str>) -> Result<()> {
        *self.clock() = offset;
        self.restart_operator().await
    }
}
