//! The program `rig` starts and stops a real Karmada federation on this machine.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use rig::{MOST_MEMBERS, NodeOptions, Options, Rig};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a real Karmada federation on this machine, for tests and demonstrations: etcd, Karmada and member clusters (m1,
/// m2, ...). The first start builds the programs with Go. Without --nodes, all processes listen on loopback, no pods run,
/// and no root is needed. With --nodes, every cluster has its own network and a node.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
struct Place {
    /// Folder for all files of the rig. Default: `rig` in the cache folder, which is `$MCZK_CACHE`, else ~/.cache/mczk.
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts a rig in the background and prints `export` lines for a shell: eval "$(rig up)". If one runs already, only
    /// prints the lines. Removes the rest of one that died.
    Up {
        #[command(flatten)]
        place: Place,
        /// Number of member clusters.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_MEMBERS)))]
        members: u8,
        /// Member clusters in Pull mode, separated by commas, or `none`. Default: the last one.
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        pull: Option<Vec<String>>,
        /// Turn on all alpha and beta feature gates of Karmada.
        #[arg(long)]
        all_feature_gates: bool,
        /// Write audit logs of the API servers of member clusters too, not only of Karmada's.
        #[arg(long)]
        audit_members: bool,
        /// Give every cluster a real node for pods, and a network that can be cut. Needs root and some packages (`make
        /// prerequisites-nodes`). Only one such rig runs on a machine at a time.
        #[arg(long)]
        nodes: bool,
        /// Member clusters with two nodes, separated by commas.
        #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "nodes")]
        two_nodes: Vec<String>,
        /// Program mczk for an image on all nodes. Default: the one beside `rig`, if there is one.
        #[arg(long, value_name = "FILE", requires = "nodes")]
        mczk: Option<PathBuf>,
        /// Stay until Ctrl-C, then take the rig down.
        #[arg(long)]
        foreground: bool,
        /// Folder with the go.mod of the tools. Default: tests/karmada of the source.
        #[arg(long, value_name = "DIR")]
        tools_module: Option<PathBuf>,
        /// Folder with the go.mod of Kubernetes in member clusters, in tests/kubernetes of the source. Default: Kubernetes
        /// of the tools.
        #[arg(long, value_name = "DIR")]
        kubernetes_module: Option<PathBuf>,
    },
    /// Ends all processes of the rig and removes its files. The tools stay.
    Down(Place),
    /// Shows all components, nodes and member clusters. Exit code 1 if one is down or not Ready.
    Status(Place),
    /// Stops a component, by its name in `rig status`.
    Stop(One),
    /// Starts a stopped component.
    Start(One),
    /// Stops a component and starts it again.
    Restart(One),
    /// Kills a component by SIGKILL. The supervisor starts it again.
    Kill(One),
    /// Runs a command in a node (host, m1, m1-2, ...) or in the `router`: rig exec m1 -- kubectl get pods
    Exec {
        /// A node, or `router`.
        node: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Imports an image archive of `docker save` into nodes.
    Load {
        /// The archive.
        file: PathBuf,
        /// The nodes. Default: all.
        nodes: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Copies an image of an OCI image layout into the registry of the rig, and prints the reference for pods.
    Push {
        /// The folder of the layout and the tag, FOLDER:TAG. `make image` makes one.
        image: String,
        /// The repository and the tag in the registry.
        #[arg(default_value = concat!("mczk:", env!("CARGO_PKG_VERSION")))]
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Drops all packets between two clusters, or between one and all others. This machine still reaches all clusters.
    Cut {
        /// A cluster: m1, ..., or `host`, where Karmada runs.
        a: String,
        /// Another cluster. Default: all others.
        b: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Undoes `cut` between two clusters, between one and all others, or everywhere.
    Heal {
        /// A cluster.
        a: Option<String>,
        /// Another cluster.
        b: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Delays packets between two clusters, each way.
    Delay {
        /// A cluster.
        a: String,
        /// Another cluster.
        b: String,
        /// Milliseconds; 0 ends it.
        milliseconds: f64,
        #[command(flatten)]
        place: Place,
    },
    /// Drops a part of the packets between two clusters, each way.
    Lose {
        /// A cluster.
        a: String,
        /// Another cluster.
        b: String,
        /// Percentage of all packets; 0 ends it.
        percent: f64,
        #[command(flatten)]
        place: Place,
    },
    /// Kills a node and all its pods at once, as a power cut does.
    StopNode(One),
    /// Starts a stopped node.
    StartNode(One),
    /// Kills the control plane of a cluster. Its nodes keep running.
    StopControlPlane(One),
    /// Starts a stopped control plane.
    StartControlPlane(One),
    /// Kills a whole cluster at once: control plane, nodes and pods.
    StopCluster(One),
    /// Starts a stopped cluster.
    StartCluster(One),
    /// Prints the `export` lines of a running rig.
    Env(Place),
    /// Prints the path of a kubeconfig: karmada, m1, ..., mczk-operator.
    Kubeconfig(One),
    /// Builds the missing tools and prints their folder.
    Tools {
        /// Include the programs of nodes.
        #[arg(long)]
        nodes: bool,
        /// Leave out Helm: a federation starts without it.
        #[arg(long)]
        without_helm: bool,
        /// Folder with the go.mod of the tools. Default: tests/karmada of the source.
        #[arg(long, value_name = "DIR")]
        tools_module: Option<PathBuf>,
        /// Build those of this Kubernetes for member clusters instead.
        #[arg(long, value_name = "DIR", conflicts_with_all = ["nodes", "without_helm", "tools_module"])]
        kubernetes_module: Option<PathBuf>,
    },
    /// The supervisor, which `up` starts.
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        dir: PathBuf,
    },
    /// The process that delays packets between clusters.
    #[command(hide = true)]
    Forward {
        #[arg(long)]
        device: String,
        #[arg(long)]
        lines: PathBuf,
    },
    /// The process that provides the volumes of a cluster.
    #[command(hide = true)]
    Volumes {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        kubeconfig: PathBuf,
        #[arg(long)]
        node: Vec<String>,
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
        // Without a runtime there is only this thread. The kernel ends children with the thread that started them.
        Verb::Supervise { dir } => rig::supervise(&dir).map(|()| ExitCode::SUCCESS),
        Verb::Forward { device, lines } => rig::forward(&device, &lines).map(|()| ExitCode::SUCCESS),
        Verb::Exec { node, command, place } => exec(&node, &command, place.dir.as_deref()),
        Verb::Volumes { dir, kubeconfig, node } => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")
            .and_then(|runtime| runtime.block_on(rig::provide_volumes(&dir, &kubeconfig, &node)))
            .map(|()| ExitCode::SUCCESS),
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
        Verb::Up {
            place,
            members,
            pull,
            all_feature_gates,
            audit_members,
            nodes,
            two_nodes,
            mczk,
            foreground,
            tools_module,
            kubernetes_module,
        } => {
            let options = Options {
                dir: place.dir,
                members,
                pull: pull.map(|names| names.into_iter().filter(|name| name != "none").collect()),
                all_feature_gates,
                audit_members,
                tools_module,
                kubernetes_module,
                nodes: nodes.then_some(NodeOptions { two: two_nodes, mczk, without_karmada: false }),
                supervisor: Some(std::env::current_exe().context("this program's file is not known")?),
                silent: false,
            };
            up(options, foreground).await?;
        }
        Verb::Down(place) => down(place).await?,
        Verb::Status(place) => {
            let status = attach(&place)?.status().await?;
            print!("{status}");
            if !status.healthy() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Verb::Stop(one) => attach(&one.place)?.stop(&one.name).await?,
        Verb::Start(one) => attach(&one.place)?.start(&one.name).await?,
        Verb::Restart(one) => attach(&one.place)?.restart(&one.name).await?,
        Verb::Kill(one) => attach(&one.place)?.kill(&one.name).await?,
        Verb::Env(place) => print!("{}", attach(&place)?.exports()),
        Verb::Kubeconfig(one) => {
            let path = attach(&one.place)?.kubeconfig(&one.name);
            anyhow::ensure!(path.exists(), "no kubeconfig {:?}", one.name);
            println!("{}", path.display());
        }
        Verb::Tools { nodes, without_helm, tools_module, kubernetes_module } => {
            let chosen = rig::Tools { nodes, helm: !without_helm };
            let build = move || match kubernetes_module {
                Some(module) => rig::kubernetes(&module),
                None => chosen.build(tools_module.as_deref()),
            };
            let folder = tokio::task::spawn_blocking(build).await??;
            println!("{}", folder.display());
        }
        Verb::Load { file, nodes, place } => {
            let start = Instant::now();
            eprintln!("loading {}: some seconds for 100 MB", file.display());
            attach(&place)?.import(&file, &nodes).await?;
            eprintln!("loaded, after {:.1} s", start.elapsed().as_secs_f64());
        }
        Verb::Push { image, name, place } => println!("{}", attach(&place)?.push(&image, &name).await?),
        Verb::Cut { a, b, place } => attach(&place)?.cut(&a, b.as_deref()).await?,
        Verb::Heal { a, b, place } => attach(&place)?.heal(a.as_deref(), b.as_deref()).await?,
        Verb::Delay { a, b, milliseconds, place } => attach(&place)?.delay(&a, &b, milliseconds).await?,
        Verb::Lose { a, b, percent, place } => attach(&place)?.lose(&a, &b, percent).await?,
        Verb::StopNode(one) => attach(&one.place)?.stop_node(&one.name).await?,
        Verb::StartNode(one) => attach(&one.place)?.start_node(&one.name).await?,
        Verb::StopControlPlane(one) => attach(&one.place)?.stop_control_plane(&one.name).await?,
        Verb::StartControlPlane(one) => attach(&one.place)?.start_control_plane(&one.name).await?,
        Verb::StopCluster(one) => attach(&one.place)?.stop_cluster(&one.name).await?,
        Verb::StartCluster(one) => attach(&one.place)?.start_cluster(&one.name).await?,
        Verb::Supervise { .. } | Verb::Forward { .. } | Verb::Volumes { .. } | Verb::Exec { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn down(place: Place) -> Result<()> {
    let start = Instant::now();
    if tokio::task::spawn_blocking(move || Rig::down_at(place.dir.as_deref())).await?? {
        println!("the rig is down, after {:.1} s", start.elapsed().as_secs_f64());
    } else {
        println!("no rig runs there");
    }
    Ok(())
}

fn attach(place: &Place) -> Result<Rig> {
    Rig::attach(place.dir.as_deref())
}

/// Replaces this process by the command.
fn exec(node: &str, command: &[String], dir: Option<&std::path::Path>) -> Result<ExitCode> {
    let argv: Vec<_> = command.iter().map(String::as_str).collect();
    let error = Rig::attach(dir)?.exec_command(node, &argv)?.exec();
    Err(error).context("cannot run nsenter: it is in the package util-linux")
}

async fn up(options: Options, foreground: bool) -> Result<()> {
    let module = options.tools_module.clone();
    // Users get all tools in PATH.
    tokio::task::spawn_blocking(move || rig::Tools::default().build(module.as_deref())).await??;
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
            // Dropping the future has ended all processes. A thread may still wait for a compiler, which ends with this
            // process.
            eprintln!("interrupted: the rig is taken down");
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
