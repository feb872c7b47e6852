//! The README: that it can be read in a terminal, and that what it speaks of is there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn no_line_is_long_and_tables_are_aligned() {
    let text = read("README.md");
    let (mut code, mut columns): (bool, Option<Vec<usize>>) = (false, None);
    for line in text.lines() {
        code ^= line.starts_with("```");
        assert!(line.chars().count() <= 120, "too long: {line}");
        if code || !line.starts_with('|') {
            columns = None;
            continue;
        }
        let bars: Vec<usize> = line.chars().enumerate().filter(|(_, c)| *c == '|').map(|(at, _)| at).collect();
        assert_eq!(columns.get_or_insert_with(|| bars.clone()), &bars, "not aligned: {line}");
    }
}

#[test]
fn every_target_exists() {
    let (text, makefile) = (read("README.md"), read("Makefile"));
    // At the beginning of a line, in a quotation, or in a substitution: else it is English.
    let targets: BTreeSet<&str> = ["\nmake ", "`make ", "$(make -s "]
        .into_iter()
        .flat_map(|before| text.split(before).skip(1))
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap())
        .collect();
    assert!(targets.len() > 4, "{targets:?}");
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
    }
}

/// One of the quoted texts that follow every occurrence of `opening`, where a quoted text comes next.
fn quoted<'a>(text: &'a str, opening: &'a str, nth: usize) -> impl Iterator<Item = &'a str> {
    text.match_indices(opening).filter_map(move |(at, _)| {
        let rest = text[at + opening.len()..].trim_start().strip_prefix('"')?;
        rest.split('"').step_by(2).nth(nth)
    })
}

/// The reasons that a file gives in conditions.
fn reasons(text: &str) -> BTreeSet<String> {
    // What comes after is tests; events have reasons of their own.
    let text = text.split("#[cfg(test)]").next().unwrap().replace("Event { reason: \"", "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
    let word = |reason: &&str| {
        reason.len() > 3
            && !["True", "False", "Unknown"].contains(reason)
            && reason.starts_with(|c: char| c.is_ascii_uppercase())
            && reason.chars().all(|c| c.is_ascii_alphabetic())
    };
    [
        ("reason: ", 0),
        ("const REASON: &str =", 0),
        ("\"reason\": ", 0),
        ("unsettled(", 0),
        (".waiting(", 0),
        ("verdict(", 1),
        ("at(cluster, ", 0),
        ("at(first, ", 0),
    ]
    .into_iter()
    .flat_map(|(opening, nth)| quoted(&text, opening, nth))
    .filter(word)
    .map(ToOwned::to_owned)
    .collect()
}

/// Where conditions get their reasons.
const REASONED: [&str; 11] = [
    "src/rollout/plan.rs",
    "src/rollout/advance.rs",
    "src/rollout/advance/list.rs",
    "src/rollout/advance/next.rs",
    "src/rollout/certificates.rs",
    "src/rollout/certificates/replacement.rs",
    "src/rollout/binding.rs",
    "src/rollout/second_bootstrap.rs",
    "src/rollout/status.rs",
    "src/rollout/teardown.rs",
    "src/controller/report.rs",
];

#[test]
fn every_reason_of_a_condition_is_explained() {
    let text = read("README.md");
    let section = text.split("## Troubleshooting").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut count = 0;
    for file in REASONED {
        for reason in reasons(&read(file)) {
            count += 1;
            assert!(
                section.contains(&format!("`{reason}`")),
                "README.md, Troubleshooting, does not name the reason {reason} of {file}: add what a person should do"
            );
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn every_reason_that_is_explained_exists() {
    let text = read("README.md");
    let section = text.split("## Troubleshooting").nth(1).unwrap().split("\n## ").next().unwrap();
    let sources = REASONED.map(read).concat();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let reason = row.split('`').nth(1).unwrap();
        assert!(sources.contains(&format!("\"{reason}\"")), "no condition has the reason {reason} any more");
    }
}
