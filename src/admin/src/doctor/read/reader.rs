//! Reads with a limit of time, and what is still awaited.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use kube::Error;
use tokio::time::{sleep, timeout};

use crate::{doctor::observed::Read, register::apply::cause};

/// Time without an answer after which the command says what it waits for, and between two such lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// Limits each read, and knows which ones are under way.
pub(in crate::doctor) struct BoundedReader {
    limit: Duration,
    under_way: RefCell<BTreeSet<String>>,
}

impl BoundedReader {
    /// A reader that waits this long for each answer.
    pub(in crate::doctor) const fn new(limit: Duration) -> Self {
        Self { limit, under_way: RefCell::new(BTreeSet::new()) }
    }

    /// The answer of an API server, or why there is none.
    pub(super) async fn read<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) -> Read<T> {
        self.bounded(what, async { request.await.map_err(why) }).await
    }

    /// The result of a task, or an error after the limit.
    pub(super) async fn bounded<T>(&self, what: &str, task: impl Future<Output = Read<T>>) -> Read<T> {
        self.under_way.borrow_mut().insert(what.to_owned());
        let result = timeout(self.limit, task).await;
        self.under_way.borrow_mut().remove(what);
        result.unwrap_or_else(|_| Err(format!("no answer within {} s", self.limit.as_secs())))
    }

    /// Runs a task, and prints on standard error what it waits for if that takes long.
    pub(in crate::doctor) async fn run<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        let mut printed = String::new();
        loop {
            tokio::select! {
                result = &mut task => return result,
                () = sleep(PATIENCE) => {}
            }
            let line = self.under_way.borrow().iter().cloned().collect::<Vec<_>>().join(", ");
            if line != printed {
                // Standard error may be closed. The exit code remains.
                let _ = writeln!(io::stderr(), "mczk: reading {line}");
                printed = line;
            }
        }
    }
}

/// Why a request failed, without the layers of the client.
fn why(error: Error) -> String {
    match error {
        Error::Api(status) => status.message,
        error => cause(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_without_an_answer_ends() {
        let reader = BoundedReader::new(Duration::from_millis(10));
        let read: Read<()> = reader.run(reader.bounded("x", std::future::pending())).await;
        assert_eq!(read, Err("no answer within 0 s".to_owned()));
        assert!(reader.under_way.borrow().is_empty());
    }
}
