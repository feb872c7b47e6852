//! The delay of the status.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{NAME, Step, StoryContext};
use crate::patience::wait_for;

/// Number of kills of the leader.
const TIMES: usize = 9;
/// Bound of the median.
const MEDIAN: Duration = Duration::from_secs(3);
/// Bound of the worst.
const WORST: Duration = Duration::from_secs(10);

pub const STATUS_DELAY: Step =
    step!("status-delay", status_delay, "the leader is killed nine times: the status names the next one within bounds");

impl StoryContext<'_> {
    async fn status_delay(&mut self) -> Result<()> {
        let mut delays = Vec::new();
        for _ in 0..TIMES {
            let (former, id) = self.leader().await?;
            self.kill(&former).await?;
            let next = wait_for("another server leads", Duration::from_secs(60), || async {
                for server in self.pods().servers().await? {
                    let another = server.name != former.name || server.cluster != former.cluster;
                    if another && server.leads().await {
                        return Ok(server);
                    }
                }
                anyhow::bail!("no server reports that it leads")
            })
            .await?;
            let leads = Instant::now();
            wait_for("the status names it", Duration::from_secs(60), || async {
                let status = self.scene.get(NAME).await?.status.unwrap_or_default();
                let leader =
                    status.ensemble.and_then(|ensemble| ensemble.leader).context("the status names no leader")?;
                ensure!(leader.id != id && leader.cluster == next.cluster, "the status names server {}", leader.id);
                Ok(())
            })
            .await?;
            delays.push(leads.elapsed());
            self.all_serve().await?;
            let (named, served) = (delays.last().map_or(0.0, Duration::as_secs_f64), leads.elapsed().as_secs_f64());
            self.members.report(&format!("server {id} was killed: the status names the next leader after {named:.2} s, all servers serve after {served:.1} s"));
        }
        delays.sort();
        let (median, worst) = (delays.get(TIMES / 2).copied(), delays.last().copied());
        let (median, worst) = median.zip(worst).context("no delay was measured")?;
        self.members.report(&format!(
            "time until the status names a new leader: median {:.2} s, worst {:.2} s, of {TIMES}",
            median.as_secs_f64(),
            worst.as_secs_f64()
        ));
        ensure!(median < MEDIAN && worst < WORST, "the status is too late");
        self.nothing_rolled().await
    }
}
