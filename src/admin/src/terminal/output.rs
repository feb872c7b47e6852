//! What a subcommand prints: the format, the colours, and the exit code.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;

use super::error::Error;
use mczk_api::yaml;

/// How a subcommand ends that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing is left to do. Exit code 0.
    Fine,
    /// Something waits, differs or is not Ready: the output says what. Exit code 3.
    Waits,
}

impl Exit {
    /// [`Exit::Waits`] if something waits.
    #[must_use]
    pub fn waits(waits: bool) -> Self {
        if waits { Self::Waits } else { Self::Fine }
    }
}

/// Format of a result that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// JSON, with line breaks
    Json,
    /// YAML
    Yaml,
}

impl Format {
    /// The value in this format, with a line break at the end.
    ///
    /// # Errors
    /// If the value cannot be serialized.
    pub(crate) fn text<T: Serialize>(self, value: &T) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => yaml::write(value)?,
        })
    }
}

/// Prints a text on standard output.
///
/// # Errors
/// If standard output is closed.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?)
}

/// True if the output has colours: on a terminal, unless `NO_COLOR` forbids them.
pub(crate) fn is_coloured() -> bool {
    let variable = |name| std::env::var_os(name);
    allows_colours(io::stdout().is_terminal(), variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

/// <https://no-color.org>: any value but an empty one forbids colours.
fn allows_colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::terminal(true, None, Some("xterm"), true)]
    #[case::empty_variable(true, Some(""), Some("xterm"), true)]
    #[case::forbidden(true, Some("1"), Some("xterm"), false)]
    #[case::file(false, None, Some("xterm"), false)]
    #[case::no_colours(true, None, Some("dumb"), false)]
    #[case::no_term(true, None, None, false)]
    fn colours(
        #[case] is_terminal: bool,
        #[case] no_color: Option<&str>,
        #[case] term: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(allows_colours(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new)), expected);
    }

    #[test]
    fn formats() {
        let value = serde_json::json!({ "a": 1 });
        assert_eq!(Format::Json.text(&value).unwrap(), "{\n  \"a\": 1\n}\n");
        assert_eq!(Format::Yaml.text(&value).unwrap(), "a: 1\n");
    }
}
