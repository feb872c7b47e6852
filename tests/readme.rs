//! The documentation: the README can be read in a terminal, and everything that the pages name exists.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod advice;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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
    let makefile = ["Makefile", "docs/docs.mk", "image/image.mk", "release/release.mk"].map(read).concat();
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

/// The crates of other projects that a manifest names, apart from packages of this repository.
fn direct_crates() -> BTreeSet<String> {
    let mut manifests = vec!["Cargo.toml".to_owned()];
    for folder in ["src", "tests", "benches"] {
        files(Path::new(folder), "toml", &mut manifests);
    }
    let (mut own, mut named) = (BTreeSet::new(), BTreeSet::new());
    for text in manifests.iter().filter(|name| name.ends_with("Cargo.toml")).map(|name| read(name)) {
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']);
            } else if let Some((name, value)) = line.split_once('=') {
                let name = name.trim().split('.').next().unwrap();
                if section == "package" && name == "name" {
                    own.insert(value.trim().trim_matches('"').to_owned());
                } else if section.ends_with("dependencies") {
                    named.insert(name.to_owned());
                }
            }
        }
    }
    named.difference(&own).cloned().collect()
}

#[test]
fn every_direct_crate_has_its_reason() {
    let text = read("docs/explanation/dependencies.md");
    let tables = text.split("\n## Tools").next().unwrap();
    let cells = tables.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let explained: BTreeSet<String> =
        cells.flat_map(|cell| cell.split(',')).map(|name| name.trim().to_owned()).filter(|n| n != "crate").collect();
    let direct = direct_crates();
    let missing: Vec<_> = direct.difference(&explained).collect();
    let unused: Vec<_> = explained.difference(&direct).collect();
    assert!(direct.len() > 40, "{direct:?}");
    assert!(missing.is_empty() && unused.is_empty(), "dependencies.md misses {missing:?}, and names {unused:?}");
}
