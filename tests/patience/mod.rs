//! Waits for a condition, and fails with its name if it is not reached.
#![allow(dead_code)] // Not every test needs all of it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The longest wait. Test machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits in an asynchronous test.
pub async fn wait_for(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "not after {} s: {what}", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits for a value in a test without a runtime.
// Callers pass literals.
#[allow(clippy::needless_pass_by_value)]
pub fn until<T: Debug + PartialEq>(what: &str, expected: T, mut get: impl FnMut() -> T) {
    let end = Instant::now() + PATIENCE;
    loop {
        let last = get();
        if last == expected {
            return;
        }
        assert!(Instant::now() < end, "not after {} s: {what}; last: {last:?}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
