//! The command line: one subcommand a file, each an argument structure and a `run`.
//!
//! A subcommand is added by its file, a line in [`Command`] and a line in [`Command::run`].

pub mod agent;
pub mod certs;
mod columns;
pub mod connection;
pub mod crds;
pub mod install;
mod log;
pub mod operator;
pub mod register;
pub mod server;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand, error::ErrorKind};

/// One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation.
#[derive(Debug, Parser)]
#[command(name = "mczk", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What mczk can be asked to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the interpreter webhook and drive the rollout of every MultiClusterZooKeeper
    Operator(Box<operator::Operator>),
    /// Run the agent of a member cluster
    Member(Box<agent::Agent>),
    /// Run ZooKeeper in a server's pod, as its parent process
    Server(Box<server::Server>),
    /// Make an authority and a serving certificate for the webhook
    Certs(certs::Certs),
    /// Print the CustomResourceDefinitions of MultiClusterZooKeeper and ZooKeeper as YAML
    Crds(crds::Crds),
    /// Copy this program into a folder, for the pods of servers
    Install(install::Install),
    /// Tell Karmada of ensembles: definitions, the operator's rights, where definitions go, and the webhook
    Register(Box<register::Register>),
    /// Take back what `register` did; members keep what they run
    Unregister(Box<register::Unregister>),
}

impl Command {
    fn run(self) -> Result<(), Error> {
        match self {
            Self::Operator(operator) => operator.run(),
            Self::Server(server) => server.run(),
            Self::Certs(certs) => certs.run(),
            Self::Crds(crds) => crds.run(),
            Self::Member(member) => member.run(),
            Self::Install(install) => install.run(),
            Self::Register(register) => register.run(),
            Self::Unregister(unregister) => unregister.run(),
        }
    }
}

/// Why a subcommand ended without success. Each is one line on standard error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong: the text names the flag and what to do. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work. Exit code 1.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// Parses the command line, runs the subcommand and tells the process's exit code: 0 for success, 1 for a failure, 2 for
/// a wrong command line or configuration.
#[must_use]
pub fn main() -> ExitCode {
    // Once, for every part that speaks TLS; it fails only if it was done before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Runs a service on all processors until it ends.
fn run_service(service: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(service);
    // What still runs was asked to end, and had its time.
    runtime.shutdown_background();
    result
}

/// Runs a short task on this thread.
fn block_on<T>(task: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(task)
}

/// What clap refused, on one line: its own text spreads over several, of which log collectors show the last.
fn refused(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A closed pipe is all that can go wrong here, and nobody is left to be told.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    print_error(&one_line(&error.render().to_string()));
    ExitCode::from(2)
}

/// Clap's message and its tips, without usage and without line breaks.
fn one_line(text: &str) -> String {
    let mut paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    for tip in paragraphs.filter(|paragraph| paragraph.starts_with("tip:")) {
        line.push_str("; ");
        line.push_str(&tip);
    }
    line.push_str("; see --help");
    line
}

fn print_error(line: &str) {
    // Standard error may be closed; the exit code still tells.
    let _ = writeln!(io::stderr(), "mczk: {}", line.replace('\n', " "));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_refusal_is_one_line() {
        let error = Cli::try_parse_from(["mczk", "crd"]).unwrap_err();
        let line = one_line(&error.render().to_string());
        assert!(!line.contains('\n'), "{line}");
        assert!(line.contains("crds"), "{line}");
    }
}
