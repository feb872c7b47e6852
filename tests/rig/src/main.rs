//! `rig`: starts and stops a real Karmada federation on this machine.

use std::path::PathBuf;
use std::process::{ExitCode, exit};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use rig::{MOST_MEMBERS, Options, Rig};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a real Karmada federation on this machine, for tests and demonstrations: etcd, Karmada's control plane and
/// member clusters (m1, m2, ...) without nodes, all processes on loopback. Needs no root; needs Go the first time.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
struct Place {
    /// The folder of the rig, which holds all its files. Default: `rig` in the cache folder, which is `$MCZK_CACHE` or
    /// else ~/.cache/mczk.
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts a rig in the background and prints `export` lines for a shell (`eval "$(rig up)"`). If one runs already,
    /// only prints them; what is left of one that died is taken down first.
    Up {
        #[command(flatten)]
        place: Place,
        /// How many member clusters.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_MEMBERS)))]
        members: u8,
        /// Members that join in Pull mode, separated by commas, or `none`. Default: the last one.
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        pull: Option<Vec<String>>,
        /// Turns all alpha and beta feature gates of Karmada on.
        #[arg(long)]
        all_feature_gates: bool,
        /// Lets the members' API servers write audit logs too, not only Karmada's.
        #[arg(long)]
        audit_members: bool,
        /// Stays until Ctrl-C and takes the rig down then.
        #[arg(long)]
        foreground: bool,
        /// The folder with the go.mod that pins the tools. Default: tests/karmada of the source.
        #[arg(long, value_name = "DIR")]
        tools_module: Option<PathBuf>,
    },
    /// Ends every process of the rig and removes its files (not the tools).
    Down(Place),
    /// Shows all components and members. Exit code 1 if one is down or not Ready.
    Status(Place),
    /// Stops a component, by its name in `rig status`.
    Stop(One),
    /// Starts a stopped component.
    Start(One),
    /// Stops a component and starts it again.
    Restart(One),
    /// Kills a component as a crash would (SIGKILL); it is started again.
    Kill(One),
    /// Prints the `export` lines of a running rig.
    Env(Place),
    /// Prints the path of a kubeconfig: karmada, m1, ..., mczk-operator.
    Kubeconfig(One),
    /// Builds the tools, if they are not built yet, and prints their folder.
    Tools {
        /// The folder with the go.mod that pins the tools. Default: tests/karmada of the source.
        #[arg(long, value_name = "DIR")]
        tools_module: Option<PathBuf>,
    },
    /// The process that starts, restarts and ends the components; `up` starts it.
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        dir: PathBuf,
    },
}

#[derive(Args)]
struct One {
    /// A name.
    name: String,
    #[command(flatten)]
    place: Place,
}

fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    let result = match verb {
        // No runtime and so no other thread: its children are tied to the thread that starts them.
        Verb::Supervise { dir } => rig::supervise(&dir).map(|()| ExitCode::SUCCESS),
        verb => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")
            .and_then(|runtime| runtime.block_on(run(verb))),
    };
    result.unwrap_or_else(|e| {
        eprintln!("rig: {e:#}");
        ExitCode::FAILURE
    })
}

async fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up { place, members, pull, all_feature_gates, audit_members, foreground, tools_module } => {
            let options = Options {
                dir: place.dir,
                members,
                pull: pull.map(|names| names.into_iter().filter(|name| name != "none").collect()),
                all_feature_gates,
                audit_members,
                tools_module,
                supervisor: Some(std::env::current_exe().context("this program's file is not known")?),
                silent: false,
            };
            up(options, foreground).await?;
        }
        Verb::Down(place) => {
            let there = tokio::task::spawn_blocking(move || Rig::down_at(place.dir.as_deref())).await??;
            println!("{}", if there { "the rig is down" } else { "no rig there: nothing to do" });
        }
        Verb::Status(place) => {
            let status = Rig::attach(place.dir.as_deref())?.status().await?;
            print!("{status}");
            if !status.healthy() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Verb::Stop(one) => Rig::attach(one.place.dir.as_deref())?.stop(&one.name).await?,
        Verb::Start(one) => Rig::attach(one.place.dir.as_deref())?.start(&one.name).await?,
        Verb::Restart(one) => Rig::attach(one.place.dir.as_deref())?.restart(&one.name).await?,
        Verb::Kill(one) => Rig::attach(one.place.dir.as_deref())?.kill(&one.name).await?,
        Verb::Env(place) => print!("{}", Rig::attach(place.dir.as_deref())?.exports()),
        Verb::Kubeconfig(one) => {
            let path = Rig::attach(one.place.dir.as_deref())?.kubeconfig(&one.name);
            anyhow::ensure!(path.exists(), "no kubeconfig {:?}", one.name);
            println!("{}", path.display());
        }
        Verb::Tools { tools_module } => {
            let folder = tokio::task::spawn_blocking(move || rig::tools(tools_module.as_deref())).await??;
            println!("{}", folder.display());
        }
        Verb::Supervise { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(options: Options, foreground: bool) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let mut stopped = async || {
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    };
    let rig = tokio::select! {
        rig = Rig::up(options) => rig?,
        code = stopped() => {
            // Dropping the future has ended all processes. At once: a thread may still wait for a compiler, which ends
            // with this process.
            eprintln!("interrupted: what was started is taken down");
            exit(code);
        }
    };
    if !foreground {
        print!("{}", rig.detach()?.exports());
        return Ok(());
    }
    print!("{}", rig.exports());
    eprintln!("Ctrl-C takes the rig down");
    tokio::select! {
        () = rig.ended() => eprintln!("the rig has been taken down"),
        _ = stopped() => rig.down().await?,
    }
    Ok(())
}
