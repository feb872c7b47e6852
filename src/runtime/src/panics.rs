//! Catches panics, so that one request or object does not affect the others.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;

/// Runs a future to its end. The caller says why nothing that outlives it is left half done.
///
/// # Errors
/// If it panics, with the text of the panic.
pub async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| text(panic.as_ref()))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
