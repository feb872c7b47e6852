//! The operator as a process, and what it says about itself.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddrV4,
    ops::Sub,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use e2e::{
    federation::{Federation, Ports},
    metrics,
    programs::Process,
};

/// Requests to the API server, as the operator counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// Of a page of metrics.
    fn read(page: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in page.lines() {
            let Some(rest) = line.strip_prefix("mczk_api_requests_total{method=\"") else { continue };
            let Some((method, value)) = rest.split_once('"').zip(rest.rsplit_once(' ')).map(|(m, v)| (m.0, v.1)) else {
                continue;
            };
            *all.entry(method.to_owned()).or_default() += value.parse().unwrap_or(0.0);
        }
        Self(all)
    }

    /// All of them.
    pub(crate) fn all(&self) -> f64 {
        self.0.values().sum()
    }

    /// Those that may change an object: all but GET. Renewals of the Lease are not among them: their client is not counted.
    pub(crate) fn writes(&self) -> f64 {
        self.all() - self.0.get("get").copied().unwrap_or_default()
    }
}

impl Sub for Requests {
    type Output = Self;

    fn sub(mut self, before: Self) -> Self {
        for (method, number) in &mut self.0 {
            *number -= before.0.get(method).copied().unwrap_or_default();
        }
        self
    }
}

/// The state of the operator at one moment.
pub(crate) struct State {
    /// Requests since its start.
    pub(crate) requests: Requests,
    /// Ensembles that it has reconciled.
    pub(crate) reconciled: usize,
}

/// A running operator. It ends with this value.
pub(crate) struct Operator {
    process: Process,
    ports: Ports,
    /// Time from its start until it was ready.
    pub(crate) ready_after: Duration,
    begun: Instant,
}

impl Operator {
    /// Starts an operator, and waits until it is ready.
    ///
    /// # Errors
    /// If it is not ready after 30 s.
    pub(crate) async fn start(federation: &Federation, kubeconfig: &Path) -> Result<Self> {
        let (ports, begun) = (federation.free_ports()?, Instant::now());
        let process = federation.candidate_through(ports, kubeconfig).await?;
        Ok(Self { process, ports, ready_after: begun.elapsed(), begun })
    }

    /// Starts an operator that serves the web page too, and returns the address of the page.
    ///
    /// # Errors
    /// If it is not ready after 30 s.
    pub(crate) async fn start_with_page(federation: &Federation) -> Result<(Self, SocketAddrV4)> {
        let (ports, begun) = (federation.free_ports()?, Instant::now());
        let (process, address) = federation.candidate_with_page(ports).await?;
        Ok((Self { process, ports, ready_after: begun.elapsed(), begun }, address))
    }

    /// Its state now.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn state(&self) -> Result<State> {
        let page = metrics::get(self.ports.probes, "/metrics").await?;
        let reconciled = page.lines().filter(|line| line.starts_with("mczk_ensemble_desired_voters{")).count();
        Ok(State { requests: Requests::read(&page), reconciled })
    }

    /// Waits until it has reconciled this many ensembles. Returns the time since its start, and the requests.
    ///
    /// # Errors
    /// If it has not in time.
    pub(crate) async fn reconciled(&self, ensembles: usize, patience: Duration) -> Result<(Duration, Requests)> {
        loop {
            let (at, state) = (self.begun.elapsed(), self.state().await?);
            if state.reconciled >= ensembles {
                return Ok((at, state.requests));
            }
            ensure!(at < patience, "{} of {ensembles} ensembles were reconciled in {at:?}", state.reconciled);
            // Each answer holds all series, so it is large.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The requests of a window.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn requests_in(&self, window: Duration) -> Result<Requests> {
        let before = self.state().await?.requests;
        tokio::time::sleep(window).await;
        Ok(self.state().await?.requests - before)
    }

    /// The requests from `before` until fewer than `rate` follow in each second, or the patience ends.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn requests_until_quiet(
        &self,
        before: Requests,
        rate: f64,
        patience: Duration,
    ) -> Result<Requests> {
        let begin = Instant::now();
        let mut last = before.clone();
        loop {
            let (from, pause) = (Instant::now(), Duration::from_secs(5));
            tokio::time::sleep(pause).await;
            let now = self.state().await?.requests;
            let per_second = (now.clone() - last).all() / from.elapsed().as_secs_f64();
            if per_second < rate || begin.elapsed() > patience {
                return Ok(now - before);
            }
            last = now;
        }
    }

    /// Memory in MiB: `VmRSS:` is resident now, and `VmHWM:` is the most that ever was.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn memory(&self, field: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(crate) async fn kill(self) -> Result<()> {
        self.process.kill().await
    }
}
