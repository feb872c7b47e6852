//! How the programs of these tests end: by themselves, or when somebody interrupts them.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tokio::signal::unix::{SignalKind, signal};

/// Runs something to its end, or until somebody interrupts it: what it started is ended with it.
pub async fn until_interrupted(program: &str, run: impl Future<Output = Result<()>>) -> ExitCode {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return ExitCode::FAILURE;
    };
    // Said at once: taking down takes some seconds.
    let stopped = async {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        eprintln!("\n{program}: interrupted; everything is being taken down");
    };
    let result = tokio::select! {
        result = run => result,
        () = stopped => Err(anyhow!("everything is taken down")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
