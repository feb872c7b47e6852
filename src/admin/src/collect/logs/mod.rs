//! `mczk logs`: the logs of an ensemble's servers, over all clusters.

mod line;
mod position;
mod stream;

use std::io::{self, Write};

use anyhow::anyhow;
use clap::{Args, builder::NonEmptyStringValueParser, value_parser};
use futures::future::join_all;
use kube::{Client, api::LogParams};
use tokio::{sync::mpsc, task::JoinSet};

use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, is_coloured, print},
    proxy::{Proxy, answer, clusters},
    run::block_on,
    scope::{One, existing, status_of},
    server_list::listed,
    server_name::ServerName,
};

use line::Prefix;
use stream::{LogServers, LogSource, Output};

/// Prints the logs of servers, each line with its cluster and pod
///
/// It reads through Karmada's cluster proxy, so you need the right to clusters/proxy. A cluster that does not answer is
/// named on standard error, and the others are printed.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if all logs are printed, 1 for a failure, also of a single cluster or server, 2 for a \
                        wrong command line."
)]
pub struct Logs {
    #[command(flatten)]
    object: One,
    /// The server: its id, its pod, or CLUSTER/POD [default: all servers]
    #[arg(value_name = "SERVER", value_parser = NonEmptyStringValueParser::new())]
    server: Option<String>,
    /// Print new lines as they come, also those of restarted servers
    #[arg(short, long, env = "MCZK_LOGS_FOLLOW")]
    follow: bool,
    /// Print only lines of this last time, such as 90s, 10m or 2h
    #[arg(long, env = "MCZK_LOGS_SINCE", value_name = "DURATION", value_parser = line::seconds)]
    since: Option<i64>,
    /// Print only so many lines from the end of each log [default: all]
    #[arg(long, env = "MCZK_LOGS_TAIL", value_name = "LINES", value_parser = value_parser!(i64).range(0..))]
    tail: Option<i64>,
    /// Print the log of the container before its last restart
    #[arg(short, long, env = "MCZK_LOGS_PREVIOUS", conflicts_with = "follow")]
    previous: bool,
    /// Print the time of each line, as the cluster of the server reports it
    #[arg(long, env = "MCZK_LOGS_TIMESTAMPS")]
    timestamps: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Logs {
    /// Prints the logs.
    ///
    /// # Errors
    /// If karmada-apiserver refuses or does not answer, or a log cannot be read. All others are printed before.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let proxy = Proxy::new(self.connection.config().await?);
            let (namespace, name) = (self.object.namespace(&client), &self.object.name);
            let object = existing(&client, &namespace, name).await?;
            let status = status_of(&object)?;
            let servers = LogServers {
                namespace: namespace.clone(),
                ensemble: name.clone(),
                wanted: self.server.as_deref().map(|text| {
                    let Ok(server) = text.parse::<ServerName>();
                    server
                }),
                listed: listed(&namespace, name, &status),
            };
            let clusters = clusters(&status);
            if clusters.is_empty() {
                return Err(Error::Failed(anyhow!("{namespace}/{name} has no clusters yet: see mczk why {name}")));
            }
            let failed = if self.follow {
                self.follow(&proxy, &servers, &clusters).await?
            } else {
                self.once(&proxy, &servers, &clusters).await?
            };
            if failed { Err(Error::Failed(anyhow!("not all logs could be read: see above"))) } else { Ok(Exit::Fine) }
        })
    }

    fn params(&self) -> LogParams {
        LogParams {
            container: Some(stream::CONTAINER.to_owned()),
            follow: self.follow,
            previous: self.previous,
            since_seconds: self.since,
            tail_lines: self.tail,
            // A follower goes on from the time of the last line.
            timestamps: self.timestamps || self.follow,
            ..LogParams::default()
        }
    }

    /// Prints the logs one after the other. True if one could not be read.
    async fn once(&self, proxy: &Proxy, servers: &LogServers, clusters: &[String]) -> Result<bool, Error> {
        let lists = clusters.iter().map(async |cluster| {
            let client = proxy.client(cluster).map_err(|error| error.to_string())?;
            let sources = answer(servers.find(&client, cluster)).await?;
            Ok::<_, String>((client, sources))
        });
        let (mut failed, mut found) = (false, false);
        for (index, (cluster, list)) in clusters.iter().zip(join_all(lists).await).enumerate() {
            let (client, sources) = match list {
                Ok(list) => list,
                Err(why) => {
                    complain(&format!("cluster {cluster}: {why}"));
                    failed = true;
                    continue;
                }
            };
            for source in sources {
                found = true;
                if self.previous && source.restarts == 0 {
                    complain(&format!("{cluster}/{}: its container has not restarted", source.pod));
                    continue;
                }
                let prefix = Prefix::new(cluster, &source.pod, index, is_coloured());
                let result = self.print_log(&client, &servers.namespace, &source, &prefix).await?;
                if let Err(why) = result {
                    complain(&format!("{cluster}/{}: {why}", source.pod));
                    failed = true;
                }
            }
        }
        if !found && !failed {
            complain("no server is running that this name selects");
        }
        Ok(failed || !found)
    }

    /// Prints one log, or returns why it cannot be read.
    async fn print_log(
        &self,
        client: &Client,
        namespace: &str,
        source: &LogSource,
        prefix: &Prefix,
    ) -> Result<Result<(), String>, Error> {
        let mut log = match stream::open(client, namespace, source, &self.params()).await {
            Ok(log) => log,
            Err(why) => return Ok(Err(why)),
        };
        loop {
            match stream::next_line(&mut log).await {
                Ok(Some(line)) => print(&prefix.line(&line))?,
                Ok(None) => return Ok(Ok(())),
                Err(why) => return Ok(Err(why)),
            }
        }
    }

    /// Prints the lines of all servers as they come, until a signal ends the process.
    async fn follow(&self, proxy: &Proxy, servers: &LogServers, clusters: &[String]) -> Result<bool, Error> {
        let (sender, mut receiver) = mpsc::channel::<Output>(1024);
        let mut tasks = JoinSet::new();
        for (index, cluster) in clusters.iter().enumerate() {
            let follower = stream::Follower {
                client: proxy.client(cluster)?,
                cluster: cluster.clone(),
                index,
                servers: servers.clone(),
                params: self.params(),
                timestamps: self.timestamps,
                sender: sender.clone(),
            };
            tasks.spawn(follower.run());
        }
        drop(sender);
        while let Some(output) = receiver.recv().await {
            match output {
                Output::Line { cluster, pod, index, line } => {
                    print(&Prefix::new(&cluster, &pod, index, is_coloured()).line(&line))?;
                }
                Output::Failure(text) => complain(&text),
            }
        }
        // No follower ends by itself.
        Ok(true)
    }
}

/// Standard error may be closed. The exit code remains.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "mczk: {text}");
}
