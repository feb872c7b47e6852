//! Credentials among the users' settings. Pure.

use crate::credential_name::is_credential;
use mczk_api::contract::control_api::ServerConfig;

/// Least length of a credential. Without shorter values a log could not be read.
const SHORTEST: usize = 4;

/// Values of settings and flags that may be credentials: no log line and no status may contain them.
#[must_use]
pub fn values(config: &ServerConfig) -> Vec<String> {
    let settings = config.zoo_cfg.iter().map(|entry| (entry.name.as_str(), entry.value.as_str()));
    of(settings.chain(config.jvm_flags.iter().filter_map(|flag| flag.split_once('='))))
}

/// Values of flags in a variable of the environment that may be credentials. A value may have quotes, and spaces within them.
#[must_use]
pub fn in_variable(text: &str) -> Vec<String> {
    let mut quote = None;
    let flags = text.split(|c: char| {
        let quoted = quote.is_some();
        quote = quote
            .map_or_else(|| Some(c).filter(|c| matches!(c, '"' | '\'')), |begin| Some(begin).filter(|_| c != begin));
        !quoted && c.is_whitespace()
    });
    of(flags.filter_map(|flag| flag.split_once('=')).map(|(name, value)| (name, value.trim_matches(['"', '\'']))))
}

fn of<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let credentials = pairs.filter(|(name, value)| value.len() >= SHORTEST && is_credential(name));
    credentials.map(|(_, value)| value.to_owned()).collect()
}

/// The part of a setting or flag that a message may show. What follows may be a password.
pub(super) fn name_of(text: &str) -> String {
    text.trim_start()
        .split(|c: char| c == '=' || c == ':' || c.is_whitespace() || c.is_control())
        .next()
        .unwrap_or_default()
        .to_owned()
}
