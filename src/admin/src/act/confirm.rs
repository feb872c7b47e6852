//! Asks before a command requests what cannot be undone.

use std::io::{self, BufRead, Write};

use anyhow::Context;

use crate::terminal::error::Error;

/// Asks on the terminal. Only this word confirms.
///
/// # Errors
/// If the terminal cannot be read or written.
pub(super) fn confirmed(word: &str, question: &str) -> Result<bool, Error> {
    let mut out = io::stderr();
    write!(out, "{question}").and_then(|()| out.flush()).context("cannot write to standard error")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
    Ok(line.trim() == word)
}
