//! The command line: one file for each subcommand, with its arguments and a `run`.
//!
//! To add a subcommand, add its file, a line in [`Command`] and a line in [`Command::run`].

mod agent;
mod certs;
mod columns;
mod connection;
mod crds;
mod error;
mod install;
mod log;
mod operator;
mod register;
mod run;
mod server;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

use error::Error;

/// One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation
///
/// `mczk operator` runs beside the Karmada control plane, `mczk agent` in every member cluster, and `mczk server` in every
/// ZooKeeper pod. To install: `mczk certs`, `mczk register`, then the operator and the agents.
///
/// Every flag can also be set by the environment variable that its help names.
#[derive(Debug, Parser)]
#[command(name = "mczk", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Operator(Box<operator::Operator>),
    Agent(Box<agent::Agent>),
    Server(Box<server::Server>),
    Certs(certs::Certs),
    Crds(crds::Crds),
    Install(install::Install),
    Register(Box<register::Register>),
    Unregister(Box<register::Unregister>),
}

impl Command {
    fn run(self) -> Result<(), Error> {
        match self {
            Self::Operator(operator) => operator.run(),
            Self::Server(server) => server.run(),
            Self::Certs(certs) => certs.run(),
            Self::Crds(crds) => crds.run(),
            Self::Agent(agent) => agent.run(),
            Self::Install(install) => install.run(),
            Self::Register(register) => register.run(),
            Self::Unregister(unregister) => unregister.run(),
        }
    }
}

/// Parses the command line and runs the subcommand. The exit code is 0 for success, 1 for a failure, and 2 for a wrong
/// command line or configuration.
#[must_use]
pub fn main() -> ExitCode {
    // Once, for everything that uses TLS. It fails only if it was done before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return clap_error(&error),
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Prints help, or an error of clap on one line: of several lines, log collectors show only the last.
fn clap_error(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // The only possible error is a closed pipe.
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
    // Standard error may be closed. The exit code remains.
    let _ = writeln!(io::stderr(), "mczk: {}", line.replace('\n', " "));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_tree_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_of_clap_is_one_line() {
        let error = Cli::try_parse_from(["mczk", "crd"]).unwrap_err();
        let line = one_line(&error.render().to_string());
        assert!(!line.contains('\n'), "{line}");
        assert!(line.contains("crds"), "{line}");
    }
}
