//! A program that can break its safety rules does not start.
//!
//! This test is such a program: Cargo compiles it with the broken rules of the other tests. With a variable of the
//! environment it does what `mczk` does.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::{Command, ExitCode, Output};

mod program;

const AS_PROGRAM: &str = "MCZK_TEST_AS_PROGRAM";

fn run(command: &mut Command) -> Output {
    command.arg("--version").output().expect("the program runs")
}

fn main() -> ExitCode {
    if std::env::var_os(AS_PROGRAM).is_some() {
        return mczk::cli::main();
    }
    let refused = run(Command::new(std::env::current_exe().unwrap()).env(AS_PROGRAM, "1"));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.is_empty() && error.contains("the feature `mutations`"), "{refused:?}");
    let built = run(&mut Command::new(program::mczk()));
    assert!(built.status.success() && built.stdout.starts_with(b"mczk "), "{built:?}");
    ExitCode::SUCCESS
}
