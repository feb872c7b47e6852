//! The targets of log lines, as users read them and give them to `--log-level`.
//!
//! The target of a line is the path of the module that writes it, and begins with the name of a crate. Users know the program
//! and its parts, not how they are divided into crates.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Paths of crates, and the targets that stand for them.
const PARTS: [(&str, &str); 7] = [
    ("mczk_operator", "mczk"),
    ("mczk_reading", "mczk::controller"),
    ("mczk_agent", "mczk::agent"),
    ("mczk_server", "mczk::server"),
    ("mczk_runtime", "mczk::runtime"),
    ("mczk_admin::register", "mczk::register"),
    ("mczk_admin", "mczk::cli"),
];

/// The target of a module.
pub(crate) fn of(path: &str) -> Cow<'_, str> {
    let part = PARTS.iter().find_map(|(of_crate, part)| {
        let rest = path.strip_prefix(of_crate)?;
        (rest.is_empty() || rest.starts_with("::")).then_some((part, rest))
    });
    part.map_or(Cow::Borrowed(path), |(part, rest)| Cow::Owned(format!("{part}{rest}")))
}

/// A target as a line of text has it. No text before it in a line can contain it.
pub(crate) fn in_text(target: &str) -> String {
    format!(" {target}: ")
}

/// A target as a line of JSON has it. Quotes in other texts are escaped.
pub(crate) fn in_json(target: &str) -> String {
    format!("\"target\":\"{target}\"")
}

/// Standard error, where each line has the target of [`of`]. The function writes a target as lines have it.
pub(crate) struct StandardError(pub(crate) fn(&str) -> String);

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = RenamedLine;

    fn make_writer(&'a self) -> RenamedLine {
        RenamedLine(None)
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> RenamedLine {
        let (path, target) = (line.target(), of(line.target()));
        RenamedLine((path != target).then(|| ((self.0)(path), (self.0)(&target))))
    }
}

/// Writes one line to standard error, and replaces the first text in it by the second.
pub(crate) struct RenamedLine(Option<(String, String)>);

impl RenamedLine {
    fn replaced<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        match (&self.0, str::from_utf8(line)) {
            (Some((path, target)), Ok(text)) => Cow::Owned(text.replacen(path, target, 1).into_bytes()),
            _ => Cow::Borrowed(line),
        }
    }
}

impl Write for RenamedLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(&self.replaced(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("mczk_operator::controller::apply", "mczk::controller::apply")]
    #[case("mczk_reading::clusters", "mczk::controller::clusters")]
    #[case("mczk_agent", "mczk::agent")]
    #[case("mczk_server::launch", "mczk::server::launch")]
    #[case("mczk_runtime::tls", "mczk::runtime::tls")]
    #[case("mczk_admin::register::renewal", "mczk::register::renewal")]
    #[case("mczk_admin::install", "mczk::cli::install")]
    #[case("mczk::cli::agent", "mczk::cli::agent")]
    #[case("mczk_servers::launch", "mczk_servers::launch")]
    #[case("hyper::proto", "hyper::proto")]
    fn targets_name_parts_of_the_program(#[case] path: &str, #[case] target: &str) {
        assert_eq!(of(path), target);
    }

    #[rstest]
    #[case(
        in_text,
        "2026-01-01T00:00:00.000000Z  INFO mczk_server::launch: Starts, as mczk_server::launch: says\n",
        "2026-01-01T00:00:00.000000Z  INFO mczk::server::launch: Starts, as mczk_server::launch: says\n"
    )]
    #[case(
        in_json,
        r#"{"message":"mczk_server::launch: \"target\":\"mczk_server::launch\"","target":"mczk_server::launch"}"#,
        r#"{"message":"mczk_server::launch: \"target\":\"mczk_server::launch\"","target":"mczk::server::launch"}"#
    )]
    fn a_line_has_the_target_that_users_know(
        #[case] written: fn(&str) -> String,
        #[case] line: &str,
        #[case] expected: &str,
    ) {
        let renamed = RenamedLine(Some((written("mczk_server::launch"), written("mczk::server::launch"))));
        assert_eq!(str::from_utf8(&renamed.replaced(line.as_bytes())).unwrap(), expected);
    }
}
