//! Runs a program to its end.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::lifeline::end_with_parent;

/// The number of lines of a failed program's output in an error message.
const LINES: usize = 30;

/// Runs a program to its end and returns its standard output. Blocks. If this process ends first, the kernel sends
/// `signal` to the program.
pub(crate) fn run_blocking(mut command: Command, signal: Signal) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null());
    let Output { status, stdout, stderr } =
        end_with_parent(&mut command, signal).output().with_context(|| format!("cannot run {program}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    let text = String::from_utf8_lossy(if stderr.is_empty() { &stdout } else { &stderr }).into_owned();
    let skipped = text.lines().count().saturating_sub(LINES);
    let end: Vec<_> = text.lines().skip(skipped).collect();
    bail!("{program} {}: {status}\n{}", arguments.join(" "), end.join("\n"))
}

/// As [`run_blocking`], for a program that may be killed at any time.
pub(crate) async fn run(command: Command) -> Result<String> {
    // The kernel sends the signal when the thread ends, so the thread must live as long as the program.
    tokio::task::spawn_blocking(move || run_blocking(command, Signal::SIGKILL)).await.context("a thread ended early")?
}
