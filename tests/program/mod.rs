//! The program `mczk`, as users run it.
//!
//! Cargo would build it for a test with every feature that a test has, so also with the broken safety rules of
//! `mczk_api::mutation`. A command of its own builds it without, from the third-party crates that the tests have too.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Builds `mczk` as `make` does, if it is out of date. `MCZK_BIN` names a program to use instead.
pub fn mczk() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(given) = std::env::var_os("MCZK_BIN") {
            return given.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        build.args(["build", "--quiet", "--package", "mczk", "--package", "rig", "--package", "e2e", "--bins"]);
        assert!(build.status().expect("cargo runs").success(), "mczk does not build");
        // This test lies in the folder `deps` beside the program.
        let test = std::env::current_exe().expect("the path of this test");
        test.ancestors().nth(2).expect("the folder of programs").join("mczk")
    });
    &PROGRAM
}
