//! The command line. Each subcommand has a file with its arguments and a `run`: here for services, in [`mczk_admin`] for
//! users.
//!
//! To add a subcommand, see `CONTRIBUTING.md`.

mod agent;
mod completion;
mod dashboard;
mod election;
mod log;
mod man;
mod operator;
mod operator_dashboard;
mod probe;
mod server;
mod traces;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use mczk_admin::{
    act, collect, doctor, install, see,
    terminal::{error::Error, output::Exit},
};
use mczk_api::mutation;

/// One ZooKeeper ensemble, stretched over the member clusters of a Karmada federation
///
/// `mczk operator` runs beside the Karmada control plane, `mczk agent` in every member cluster, and `mczk server` in every
/// ZooKeeper pod. `mczk probe` checks the network before the first one. `mczk install` installs everything.
///
/// `mczk status`, `why`, `plan` and `diff` show what an ensemble does, what it waits for and what comes next. `mczk
/// dashboard` shows it as a web page, and `mczk doctor` examines the installation. `mczk restart` and `replace` act on
/// servers, and `failover` moves voters to a spare cluster; `logs` and `support-bundle` collect what they write. `mczk adopt` and `declare-over` say what becomes of an
/// ensemble whose control plane was lost. A copy of the program with the name `kubectl-mczk` in PATH makes them `kubectl
/// mczk status` and so on.
///
/// Every flag can also be set by the environment variable that its help names.
#[derive(Debug, Parser)]
#[command(
    name = "mczk",
    version,
    max_term_width = 120,
    after_help = "Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line or configuration. Commands that \
                  examine or wait end with 3 if something waits, differs, is not Ready, is missing or does not work."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Operator(Box<operator::Operator>),
    Agent(Box<agent::Agent>),
    Server(Box<server::Server>),
    Probe(Box<probe::Probe>),
    Certs(install::certs::Certs),
    Crds(install::crds::Crds),
    Install(Box<install::Install>),
    Uninstall(Box<install::Uninstall>),
    Register(Box<install::register::Register>),
    Unregister(Box<install::register::Unregister>),
    Status(Box<see::status::Status>),
    Why(Box<see::why::Why>),
    Dashboard(Box<dashboard::Dashboard>),
    Plan(Box<see::plan::Plan>),
    Diff(Box<see::diff::Diff>),
    Restart(Box<act::restart::Restart>),
    Replace(Box<act::replace::Replace>),
    Failover(Box<act::failover::MoveVoters>),
    Adopt(Box<act::former_incarnations::Adopt>),
    DeclareOver(Box<act::former_incarnations::DeclareOver>),
    Logs(Box<collect::logs::Logs>),
    SupportBundle(Box<collect::bundle::SupportBundle>),
    Doctor(Box<doctor::Doctor>),
    CheckWebhook(install::check_webhook::CheckWebhook),
    Interpret(Box<see::interpret::Interpret>),
    Completion(completion::Completion),
    #[command(hide = true)]
    Man(man::Man),
}

impl Command {
    fn run(self) -> Result<Exit, Error> {
        match self {
            Self::Status(status) => return status.run(),
            Self::Why(why) => return why.run(),
            Self::Plan(plan) => return plan.run(),
            Self::Diff(diff) => return diff.run(),
            Self::Restart(restart) => return restart.run(),
            Self::Replace(replace) => return replace.run(),
            Self::Failover(failover) => return failover.run(),
            Self::Adopt(adopt) => return adopt.run(),
            Self::DeclareOver(declare) => return declare.run(),
            Self::Logs(logs) => return logs.run(),
            Self::SupportBundle(bundle) => return bundle.run(),
            Self::Doctor(doctor) => return doctor.run(),
            Self::Install(install) => return install.run(),
            Self::Uninstall(uninstall) => return uninstall.run(),
            Self::CheckWebhook(check) => check.run(),
            Self::Interpret(interpret) => interpret.run(),
            Self::Completion(completion) => completion.run(&mut command(None)),
            Self::Dashboard(dashboard) => dashboard.run(),
            Self::Man(man) => man.run(command(None)),
            Self::Operator(operator) => operator.run(),
            Self::Server(server) => server.run(),
            Self::Probe(probe) => probe.run(),
            Self::Certs(certs) => certs.run(),
            Self::Crds(crds) => crds.run(),
            Self::Agent(agent) => agent.run(),
            Self::Register(register) => register.run(),
            Self::Unregister(unregister) => unregister.run(),
        }
        .map(|()| Exit::Fine)
    }
}

/// The name by which kubectl starts its plugin `mczk`, without a suffix such as `.exe`.
const PLUGIN: &str = "kubectl-mczk";

/// The commands. Help texts show how the user started the program: a plugin of kubectl is a program with another name.
fn command(program: Option<&OsStr>) -> clap::Command {
    let is_plugin = program.and_then(|program| Path::new(program).file_stem()).is_some_and(|stem| stem == PLUGIN);
    if is_plugin { Cli::command().bin_name("kubectl mczk") } else { Cli::command() }
}

fn parse() -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut command = command(arguments.first().map(OsString::as_os_str));
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Parses the command line and runs the subcommand. The exit code is 0 for success, 1 for a failure, 2 for a wrong command
/// line or configuration, and 3 if a command that only reads finds that something waits.
#[must_use]
pub fn main() -> ExitCode {
    if mutation::ENABLED {
        print_error("this build can break its safety rules: it has the feature `mutations`, which is for tests alone");
        return ExitCode::FAILURE;
    }
    // Once, for everything that uses TLS. It fails only if it was done before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return clap_error(&error),
    };
    match cli.command.run() {
        Ok(Exit::Fine) => ExitCode::SUCCESS,
        Ok(Exit::Waits) => ExitCode::from(3),
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
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_command_tree_is_valid() {
        Cli::command().debug_assert();
    }

    #[rstest]
    #[case("/usr/bin/mczk", "Usage: mczk status")]
    #[case("/usr/bin/kubectl-mczk", "Usage: kubectl mczk status")]
    #[case("mczk-newer", "Usage: mczk-newer status")]
    fn help_shows_how_the_program_was_started(#[case] program: &str, #[case] usage: &str) {
        let error = command(Some(OsStr::new(program))).try_get_matches_from([program, "status", "--help"]).unwrap_err();
        assert!(error.to_string().contains(usage), "{error}");
    }

    #[rstest]
    #[case(&["status"], true)]
    #[case(&["status", "zk", "-n", "a", "-o", "wide", "--watch"], true)]
    #[case(&["status", "-A"], true)]
    #[case(&["status", "zk", "-A"], false)]
    #[case(&["status", "-o", "xml"], false)]
    #[case(&["why", "zk", "-o", "json"], true)]
    #[case(&["why"], false)]
    #[case(&["plan", "zk", "--server-image", "mczk:1"], true)]
    #[case(&["diff", "-f", "-"], true)]
    #[case(&["diff"], false)]
    #[case(&["restart", "zk", "--wait", "--wait-seconds", "60"], true)]
    #[case(&["restart", "zk", "--wait", "--dry-run"], false)]
    #[case(&["restart"], false)]
    #[case(&["replace", "zk", "3", "--yes"], true)]
    #[case(&["replace", "zk"], false)]
    #[case(&["failover", "zk", "--from", "m1", "--to", "m4", "--wait"], true)]
    #[case(&["failover", "zk", "--back", "m1", "--dry-run"], true)]
    #[case(&["failover", "--all", "-A", "--from", "m1"], true)]
    #[case(&["failover", "zk", "--rehearse", "m1", "--wait-seconds", "600"], true)]
    #[case(&["failover", "zk"], false)]
    #[case(&["failover", "--from", "m1"], false)]
    #[case(&["failover", "zk", "--all", "--from", "m1"], false)]
    #[case(&["failover", "zk", "-A", "--from", "m1"], false)]
    #[case(&["failover", "zk", "--from", "m1", "--back", "m1"], false)]
    #[case(&["failover", "zk", "--back", "m1", "--to", "m4"], false)]
    #[case(&["failover", "zk", "--release", "m1", "--wait"], false)]
    #[case(&["failover", "--all", "--rehearse", "m1"], false)]
    #[case(&["failover", "zk", "--from", "m1=m4"], false)]
    #[case(&["logs", "zk", "m1/zk-abc123-0", "-f", "--since", "10m", "--tail", "20"], true)]
    #[case(&["logs", "zk", "--since", "soon"], false)]
    #[case(&["logs", "zk", "--follow", "--previous"], false)]
    #[case(&["support-bundle", "-A", "--max-mebibytes", "64"], true)]
    #[case(&["support-bundle", "--max-mebibytes", "1"], false)]
    #[case(&["interpret", "AggregateStatus", "-f", "a", "--report", "m1=a", "--report", "m2=b"], true)]
    #[case(&["interpret", "Retain", "-f", "a"], false)]
    #[case(&["doctor", "--host-context", "host", "-o", "yaml"], true)]
    #[case(&["doctor", "zk"], false)]
    #[case(&["completion", "zsh"], true)]
    #[case(&["dashboard", "-A", "--port", "8000"], true)]
    #[case(&["dashboard", "orders"], false)]
    fn a_command_line(#[case] arguments: &[&str], #[case] valid: bool) {
        let parsed = Cli::try_parse_from([&["mczk"], arguments].concat());
        assert_eq!(parsed.is_ok(), valid, "{parsed:?}");
    }

    #[test]
    fn an_error_of_clap_is_one_line() {
        let error = Cli::try_parse_from(["mczk", "crd"]).unwrap_err();
        let line = one_line(&error.render().to_string());
        assert!(!line.contains('\n'), "{line}");
        assert!(line.contains("crds"), "{line}");
    }
}
