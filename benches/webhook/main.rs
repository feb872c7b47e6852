//! The benchmark of the webhook: mczk, Karmada's example of an interpreter webhook, and a server that always gives the same
//! answer, side by side on loopback. It prints tables for `docs/lab/benchmarks.md`.
//!
//! The load comes from `wrk`, on the same processors. So requests per second and latencies also depend on `wrk`, and the
//! processor time of a request is the number to compare.

mod cases;
mod load;
mod null;
mod report;
mod servers;
mod slow_clients;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, thread::available_parallelism};

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};
use e2e::interruption::until_interrupted;

use crate::{report::Samples, servers::Folder};

/// Measures the webhook beside Karmada's example of one, and beside a server that always gives the same answer.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    bench: Bench,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Args)]
struct Bench {
    /// Rounds; each measures every server in every case, and the medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Measure only the cases with this part in their names
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Karmada's example of an interpreter webhook; without it, the other servers are measured alone
    #[arg(long, value_name = "FILE")]
    example: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Part {
    /// Measures mczk under thousands of slow clients
    SlowClients {
        /// Slow clients at the same time; each needs a file descriptor
        #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u16).range(1..))]
        clients: u16,
        /// Seconds of one measurement
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Serves the same answer to every request
    #[command(hide = true)]
    NullServer {
        /// Address and port, HTTPS
        address: SocketAddr,
        /// Folder with tls.crt and tls.key
        certs: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { bench: flags, part } = Cli::parse();
    match part {
        Some(Part::NullServer { address, certs }) => {
            until_interrupted("null-server", null::serve(address, &certs)).await
        }
        Some(Part::SlowClients { clients, seconds }) => {
            let run = async {
                println!("{}", slow_clients::run(clients.into(), seconds).await?);
                anyhow::Ok(())
            };
            until_interrupted("bench-webhook", Box::pin(run)).await
        }
        None => until_interrupted("bench-webhook", Box::pin(bench(flags))).await,
    }
}

async fn bench(flags: Bench) -> Result<()> {
    let Bench { rounds, seconds, only, example } = flags;
    let mut cases = cases::all();
    cases.retain(|case| only.as_ref().is_none_or(|part| case.name.contains(part.as_str())));
    ensure!(!cases.is_empty(), "no case has the part of --only in its name");
    // The servers end before their folder is removed: values are dropped in reverse order.
    let folder = Folder::new()?;
    let servers = servers::start(&folder, example).await?;
    let mut samples = Samples::default();
    // One server after the other in each round, so that other load of the machine affects all.
    for round in 1..=rounds {
        for case in &cases {
            for server in &servers {
                eprintln!("round {round} of {rounds}: {}: {}", case.name, server.kind.name());
                samples.add(load::measure(server, case, seconds, &folder).await?);
            }
        }
    }
    println!(
        "Medians of {rounds} rounds of {seconds} s, with {} connections, on {} processors that the load uses too. New\n\
         connections resume a TLS session.\n",
        load::CONNECTIONS,
        available_parallelism()?
    );
    println!("{}\n{}\n{}", samples.loads(&cases), samples.ratios(&cases), samples.growth());
    print!("{}", report::memory(&servers)?);
    for server in servers {
        server.end().await?;
    }
    Ok(())
}
