//! How soon the status says what is.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{NAME, Step, Story};
use crate::{members::Server, patience::wait_for};

/// So often the leader is killed.
const TIMES: usize = 9;
/// The median, and the worst, are to be below.
const MEDIAN: Duration = Duration::from_secs(3);
const WORST: Duration = Duration::from_secs(10);

pub const STATUS: Step = Step {
    name: "status-delay",
    shows: "the leader is killed nine times: the status names the next one in time",
    always: false,
    run: |story| Box::pin(story.status_delay()),
};

impl Story<'_> {
    async fn status_delay(&mut self) -> Result<()> {
        let mut delays = Vec::new();
        for _ in 0..TIMES {
            let (former, id) = self.leader().await?;
            self.kill(&former).await?;
            let next = wait_for("another server leads", Duration::from_secs(60), || async {
                for server in self.pods().servers().await? {
                    let another = server.name != former.name || server.cluster != former.cluster;
                    if another && leads(&server).await {
                        return Ok(server);
                    }
                }
                anyhow::bail!("none says that it does")
            })
            .await?;
            let leads = Instant::now();
            wait_for("the status names it", Duration::from_secs(60), || async {
                let status = self.scene.get(NAME).await?.status.unwrap_or_default();
                let leader = status.ensemble.and_then(|ensemble| ensemble.leader).context("no leader is told")?;
                ensure!(leader.id != id && leader.cluster == next.cluster, "the status names server {}", leader.id);
                Ok(())
            })
            .await?;
            delays.push(leads.elapsed());
            self.all_serve().await?;
            let (told, served) = (delays.last().map_or(0.0, Duration::as_secs_f64), leads.elapsed().as_secs_f64());
            self.members.say(&format!("server {id} was killed: told after {told:.2} s, all serve after {served:.1} s"));
        }
        delays.sort();
        let (median, worst) = (delays.get(TIMES / 2).copied(), delays.last().copied());
        let (median, worst) = median.zip(worst).context("nothing was measured")?;
        self.members.say(&format!(
            "from when a server leads to when the MultiClusterZooKeeper's status says so: median {:.2} s, worst {:.2} s, of \
             {TIMES}",
            median.as_secs_f64(),
            worst.as_secs_f64()
        ));
        ensure!(median < MEDIAN && worst < WORST, "the status comes too late");
        self.nothing_rolled().await
    }
}

/// Whether a server says that it leads.
async fn leads(server: &Server) -> bool {
    let ask = async {
        let address = server.address.as_ref().context("it has no address")?;
        let mut connection = TcpStream::connect(format!("{address}:2181")).await?;
        connection.write_all(b"srvr").await?;
        let mut said = String::new();
        connection.read_to_string(&mut said).await?;
        anyhow::Ok(said.contains("Mode: leader"))
    };
    matches!(timeout(Duration::from_millis(500), ask).await, Ok(Ok(true)))
}
