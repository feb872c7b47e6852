//! `mczk completion`: completions for shells.

use std::path::Path;

use clap::Args;
use clap_complete::{Shell, generate};

use mczk_admin::terminal::{error::Error, output::print};

/// Prints a script that completes subcommands and flags in a shell
///
/// For bash: `source <(mczk completion bash)`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl Completion {
    /// Prints the script for `commands`.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(crate) fn run(&self, commands: &mut clap::Command) -> Result<(), Error> {
        let program = std::env::args_os().next();
        let name = program.as_deref().and_then(|program| Path::new(program).file_name()).and_then(|name| name.to_str());
        print(&script(self.shell, commands, name.unwrap_or("mczk")))
    }
}

/// The script for a program of this name.
fn script(shell: Shell, commands: &mut clap::Command, name: &str) -> String {
    let mut text = Vec::new();
    generate(shell, commands, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shell_has_a_script() {
        for shell in Shell::value_variants() {
            let script = script(*shell, &mut Cli::command(), "mczk");
            assert!(script.contains("status") && script.contains("all-namespaces"), "{shell}");
        }
    }
}
