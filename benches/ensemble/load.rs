//! The load: clients that each have one request on its way, all the time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::members::writer::connect;
use futures::future::try_join_all;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::statistics::{as_number, p99};

/// Bytes of a znode.
const SIZE: usize = 1024;
/// The time before each window in which the load runs, and nothing counts.
const BEFORE: Duration = Duration::from_millis(500);

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Each client sets its znode.
    Write,
    /// Each client reads its znode.
    Read,
}

/// What a window shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Answers in a second.
    pub(crate) rate: f64,
    /// Milliseconds that 99 of 100 requests took at most.
    pub(crate) p99: f64,
}

impl Sample {
    /// The mean of two windows.
    pub(crate) fn mean(self, other: Self) -> Self {
        Self { rate: f64::midpoint(self.rate, other.rate), p99: f64::midpoint(self.p99, other.p99) }
    }
}

/// The clients of one ensemble. Each has a session of its own with one server, so no request waits behind another one in a
/// connection.
pub(crate) struct Clients(Vec<(Client, String)>);

impl Clients {
    /// Opens sessions, the same number with each server, and creates a znode for each.
    ///
    /// # Errors
    /// If a server does not answer.
    pub(crate) async fn connect(addresses: &[String], number: usize) -> Result<Self> {
        let each = (0..number).zip(addresses.iter().cycle()).map(async |(client, address)| {
            let path = format!("/bench-{client}");
            let session = connect(address).await.with_context(|| address.clone())?;
            session.create(&path, &[0; SIZE], &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
            anyhow::Ok((session, path))
        });
        Ok(Self(try_join_all(each).await?))
    }

    /// Asks for some time, and measures the last part of it.
    ///
    /// # Errors
    /// If a request fails.
    pub(crate) async fn ask(&self, operation: Operation, window: Duration) -> Result<Sample> {
        let begin = Instant::now() + BEFORE;
        let tasks = self.0.iter().cloned().map(|(session, path)| {
            tokio::spawn(async move { one(&session, &path, operation, begin, begin + window).await })
        });
        let mut all = Vec::new();
        for answered in try_join_all(tasks).await? {
            all.extend(answered?);
        }
        all.sort_by(f64::total_cmp);
        let p99 = p99(&all).context("no request was answered")?;
        Ok(Sample { rate: as_number(all.len()) / window.as_secs_f64(), p99 })
    }
}

/// One client: the milliseconds of each request that was answered in the window.
async fn one(session: &Client, path: &str, operation: Operation, begin: Instant, end: Instant) -> Result<Vec<f64>> {
    let mut answered = Vec::new();
    loop {
        let sent = Instant::now();
        match operation {
            Operation::Write => drop(session.set_data(path, &[1; SIZE], None).await?),
            Operation::Read => {
                let (data, _) = session.get_data(path).await?;
                ensure!(data.len() == SIZE, "{path} has {} bytes", data.len());
            }
        }
        let now = Instant::now();
        if now > end {
            return Ok(answered);
        }
        if now > begin {
            answered.push((now - sent).as_secs_f64() * 1000.0);
        }
    }
}
