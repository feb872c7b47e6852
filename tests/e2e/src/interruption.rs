//! Ends a program cleanly on a signal.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a future to its end, or until SIGINT or SIGTERM. Dropping the future ends what it started.
pub async fn until_interrupted(program: &str, run: impl Future<Output = Result<()>>) -> ExitCode {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return ExitCode::FAILURE;
    };
    // Printed first, because taking down takes some seconds.
    let stopped = async {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        eprintln!("\n{program}: interrupted: taking everything down");
    };
    let result = tokio::select! {
        result = run => result,
        () = stopped => Err(anyhow!("interrupted, and everything is taken down")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
