//! The documentation: the README can be read in a terminal, and everything that the pages name exists.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The page with the reasons of conditions.
const TROUBLESHOOTING: &str = "docs/how-to/troubleshoot.md";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// All files below a folder with this extension, relative to the root of the repository.
fn files(folder: &Path, extension: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let relative = path.strip_prefix(root()).unwrap().to_owned();
        if path.is_dir() {
            files(&relative, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(relative.to_str().unwrap().to_owned());
        }
    }
}

/// Every page of the documentation with its text.
fn pages() -> BTreeMap<String, String> {
    let mut names = Vec::new();
    for folder in ["docs", "certs", "tests/curl", "tests/rig"] {
        files(Path::new(folder), "md", &mut names);
    }
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name).extension().is_some_and(|e| e == "md") {
            names.push(name);
        }
    }
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

#[test]
fn the_readme_fits_a_terminal() {
    let text = read("README.md");
    assert!(text.lines().count() <= 120, "README.md has more than 120 lines");
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
    let makefile = read("Makefile") + &read("docs/docs.mk");
    let mut count = 0;
    for (name, text) in pages() {
        // At the beginning of a line, in a quotation, or in a substitution: else it is English.
        let targets: BTreeSet<&str> = ["\nmake ", "`make ", "$(make -s ", "`make -s "]
            .into_iter()
            .flat_map(|before| text.split(before).skip(1))
            .map(|rest| {
                rest.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-').next().unwrap()
            })
            .filter(|target| !target.starts_with('-'))
            .collect();
        for target in targets {
            count += 1;
            assert!(makefile.contains(&format!("\n{target}:")), "{name}: there is no target {target}");
        }
    }
    assert!(count > 4, "{count}");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    for name in pages().keys().filter_map(|name| name.strip_prefix("docs/")) {
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "docs/SUMMARY.md does not name {name}");
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

/// The files in which conditions get their reasons.
fn sources() -> Vec<String> {
    let mut found = vec!["src/controller/report.rs".to_owned()];
    files(Path::new("src/rollout"), "rs", &mut found);
    found.retain(|name| !name.contains("/tests") && !name.ends_with("/events.rs"));
    found
}

#[test]
fn every_reason_of_a_condition_is_explained() {
    let text = read(TROUBLESHOOTING);
    let mut count = 0;
    for file in sources() {
        for reason in reasons(&read(&file)) {
            count += 1;
            assert!(
                text.contains(&format!("`{reason}`")),
                "{TROUBLESHOOTING} does not name the reason {reason} of {file}: add what a user should do"
            );
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn every_reason_that_is_explained_exists() {
    let text = read(TROUBLESHOOTING);
    let sources: String = sources().iter().map(|name| read(name)).collect();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let reason = row.split('`').nth(1).unwrap();
        assert!(sources.contains(&format!("\"{reason}\"")), "no condition has the reason {reason} any more");
    }
}
