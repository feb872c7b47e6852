//! Java's properties (`java.util.Properties.load`), in which ZooKeeper reads `zoo.cfg`.

use std::collections::BTreeMap;

/// The settings in a text. A later one of the same name replaces an earlier one, which counts in the second value.
pub fn parse(text: &str) -> (BTreeMap<String, String>, usize) {
    let (mut settings, mut replaced) = (BTreeMap::new(), 0);
    let mut lines = text.split(['\n', '\r']);
    while let Some(line) = lines.next() {
        let mut line = line.trim_start_matches(is_space).to_owned();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        // An odd number of backslashes at the end continues the line.
        while line.len().saturating_sub(line.trim_end_matches('\\').len()) % 2 == 1 {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.push_str(next.trim_start_matches(is_space));
        }
        let (name, value) = split(&line);
        replaced += usize::from(settings.insert(unescaped(name), unescaped(value)).is_some());
    }
    (settings, replaced)
}

const fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

/// Name and value. The name ends at the first `=`, `:` or space without a backslash.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, character) in line.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' | ' ' | '\t' | '\x0c' => {
                let rest = line[at..].trim_start_matches(is_space);
                let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
                return (&line[..at], rest.trim_start_matches(is_space));
            }
            _ => {}
        }
    }
    (line, "")
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('u') => {
                let digits: String = characters.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                plain.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('t') => plain.push('\t'),
            Some('f') => plain.push('\x0c'),
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}
