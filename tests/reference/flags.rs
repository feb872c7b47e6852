//! Subcommands and their flags.

use clap::{Arg, Command, CommandFactory as _};
use mczk::cli::Cli;

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
Every flag is also an environment variable. A flag wins over its variable. `mczk SUBCOMMAND --help` prints the same text.";

pub fn page() -> String {
    let command = Cli::command();
    let is_shown = |subcommand: &&Command| subcommand.get_name() != "help" && !subcommand.is_hide_set();
    let subcommands = command.get_subcommands().filter(is_shown);
    head("Flags and variables", INTRODUCTION) + &subcommands.map(section).collect::<String>()
}

fn section(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("\n## `mczk {}`\n\n{}.\n", command.get_name(), about.trim_end_matches('.'));
    if let Some(more) = command.get_after_help() {
        text += &format!("\n{}\n", more.to_string().trim());
    }
    let arguments =
        command.get_arguments().filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()));
    let rows: Vec<_> = arguments.map(row).collect();
    if rows.is_empty() { text } else { text + &table(["flag", "variable", "default", "description"], &rows) }
}

fn row(argument: &Arg) -> [String; 4] {
    let values = argument.get_value_names().unwrap_or_default();
    let value = if argument.get_action().takes_values() {
        values.iter().map(|name| format!(" {name}")).collect()
    } else {
        String::new()
    };
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let flag = argument.get_long().map_or_else(|| value.trim().to_owned(), |long| format!("{short}--{long}{value}"));
    let variable = argument.get_env().and_then(|name| name.to_str()).unwrap_or_default();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, named) = split_default(&help);
    let defaults: Vec<_> = argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    let default = if argument.is_required_set() {
        "required".to_owned()
    } else if defaults.is_empty() {
        named.unwrap_or_default()
    } else {
        code(&defaults.join(","))
    };
    let possible: Vec<_> = argument.get_possible_values().iter().map(|value| code(value.get_name())).collect();
    let is_switch = possible.iter().all(|value| ["`true`", "`false`"].contains(&value.as_str()));
    let choices = if is_switch { String::new() } else { format!(": {}", possible.join(", ")) };
    [code(&flag), code(variable), default, help + &choices]
}

/// A default that the help text states, since clap does not know it.
fn split_default(help: &str) -> (String, Option<String>) {
    match help.split_once("[default: ") {
        Some((text, default)) => (text.trim().to_owned(), Some(default.trim_end_matches(']').to_owned())),
        None => (help.to_owned(), None),
    }
}
