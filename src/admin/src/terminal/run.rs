//! Runs asynchronous subcommands.

use anyhow::Context;
use tokio::runtime::Builder;

use super::error::Error;

/// Runs a service on all processors until it ends.
///
/// # Errors
/// Those of the service, and if the runtime cannot start.
pub fn run_service(service: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(service);
    // Remaining tasks have already had their time to end.
    runtime.shutdown_background();
    result
}

/// Runs a short task on this thread.
pub(crate) fn block_on<T>(task: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(task)
}
