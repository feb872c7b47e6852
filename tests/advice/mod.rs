//! No text that users read may lead to the deletion of a living volume.
//!
//! The test finds the texts of messages, alerts and pages that advise to delete, replace or abandon something. Each one has
//! a row in `reviewed.txt`, with what makes it safe. It finds words, not meaning: so some rows are of texts that advise
//! nothing. A change of `placement` is left out: voters leave by it only through a majority that serves, and volumes stay.

use std::{collections::BTreeSet, path::Path};

use crate::{files, read};

/// Words that a deletion of data may name.
const THINGS: &[&str] = &[
    "claim",
    "claims",
    "copies",
    "copy",
    "data",
    "file",
    "files",
    "finalizer",
    "folder",
    "folders",
    "namespace",
    "namespaces",
    "ns",
    "object",
    "objects",
    "persistentvolume",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pod",
    "pods",
    "pv",
    "pvc",
    "pvcs",
    "secret",
    "secrets",
    "snapshots",
    "volume",
    "volumes",
];
/// Words that count after `delete` only.
const DELETED: &[&str] = &[
    "crd",
    "it",
    "mczk",
    "multiclusterzookeeper",
    "multiclusterzookeepers",
    "node",
    "policy",
    "resourcebinding",
    "statefulset",
    "statefulsets",
    "them",
    "zookeeper",
    "zookeepers",
];
const ABANDONED: &[&str] = &["cluster", "clusters", "it", "them"];
/// Other verbs after which data may be gone.
const VERBS: &[&str] = &["prune", "recreate", "remove", "rename", "replace", "restore", "rm"];
/// Words before a verb that is no advice. After `io` it is the name of an annotation, after `mczk` a command with checks.
const BEFORE: &[&str] =
    &["agents", "cannot", "could", "io", "mczk", "never", "no", "not", "operators", "reclaim", "the", "they", "would"];
const NONE: &[&str] = &["no", "none", "nothing"];
/// How many words behind a verb count.
const REACH: usize = 4;

/// Titles, tests and measurements. The generated pages repeat sources that are searched.
const LEFT_OUT: &[&str] = &[
    "docs/SUMMARY.md",
    "docs/explanation/testing.md",
    "docs/lab/",
    "docs/reference/conditions.md",
    "docs/reference/settings.md",
];

#[test]
fn every_destructive_advice_is_reviewed() {
    let table = read("tests/advice/reviewed.txt");
    let reviewed = rows(&table);
    let (mut missing, mut found) = (Vec::new(), BTreeSet::<&(&str, &str)>::new());
    for name in sources() {
        let text = read(&name);
        let is_code = Path::new(&name).extension().is_some_and(|extension| extension == "rs");
        let texts = if is_code { literals(&text) } else { vec![text] };
        for sentence in texts.iter().flat_map(|text| sentences(text)).filter(|sentence| advises(sentence)) {
            let matching = |(file, part): &&(&str, &str)| *file == name && sentence.contains(part);
            let known: Vec<_> = reviewed.iter().filter(matching).collect();
            if known.is_empty() {
                missing.push(format!("{name}: {sentence}"));
            }
            found.extend(known);
        }
    }
    let gone: Vec<_> = reviewed.iter().filter(|row| !found.contains(row)).collect();
    assert!(missing.is_empty(), "review these, and add them to tests/advice/reviewed.txt:\n{}", missing.join("\n"));
    assert!(gone.is_empty(), "these rows of tests/advice/reviewed.txt have no text any more: {gone:#?}");
}

#[test]
fn advice_is_recognized() {
    let advice = [
        "Remove volumes of former servers",
        "If none can, replace the volume",
        "kubectl delete pvc data-zk-0",
        "Rename the object named, or abandon clusters",
        "or mczk declare-over to end them",
        "kubectl delete persistentvolumeclaims --all",
        "If the others cannot, replace the volume",
        "kubectl annotate mczk zk mczk.io/abandon-clusters=m2",
        "Only if it is lost, declare the ensemble again",
    ];
    for text in advice {
        assert!(advises(text), "{text}");
    }
    for text in [
        "Delete no claim yourself",
        "The agent deletes the claim",
        "Never remove snapshots",
        "mczk replace names a volume",
    ] {
        assert!(!advises(text), "{text}");
    }
    let source = r##"let a = "one \
        and \"the\" rest"; // "a comment"
let b = ('"', '\'', r#"a "raw" one"#);
mod tests {
    "a test""##;
    assert_eq!(
        literals(source).iter().flat_map(|text| sentences(text)).collect::<Vec<_>>(),
        [r#"one and \"the\" rest"#, r#"a "raw" one"#]
    );
}

/// File and part of the text of each row.
fn rows(table: &str) -> BTreeSet<(&str, &str)> {
    let mut file = "";
    let mut rows = BTreeSet::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(row) = line.strip_prefix("  ") {
            let (part, why) = row.split_once(" -- ").unwrap_or_else(|| panic!("without a reason: {row}"));
            assert!(!why.trim().is_empty() && rows.insert((file, part)), "without a reason, or twice: {row}");
        } else {
            file = line;
        }
    }
    rows
}

fn sources() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    let kinds = [
        ("src", "rs"),
        ("docs", "md"),
        ("charts", "yaml"),
        ("charts", "txt"),
        ("examples", "yaml"),
        ("examples", "md"),
    ];
    for (folder, extension) in kinds {
        files(Path::new(folder), extension, &mut found);
    }
    found.retain(|name| !name.contains("/tests") && !LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)));
    assert!(found.len() > 300, "{}", found.len());
    found
}

/// The string literals of a Rust source, without those of its unit tests.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source.split("\nmod tests {").next().unwrap();
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, here) = rest.split_at(at);
        rest = if here.starts_with("//") {
            here.split_once('\n').map_or("", |(_, next)| next)
        } else if let Some(opened) = here.strip_prefix('"') {
            let plain = before.trim_end_matches('#');
            let end = if plain.ends_with('r') {
                opened.find(&format!("\"{}", &before[plain.len()..])).unwrap()
            } else {
                end_of(opened)
            };
            found.push(opened[..end].replace("\\\n", " "));
            &opened[end + 1..]
        } else {
            let character = ["'\"'", "'\\\"'"].into_iter().find(|character| here.starts_with(*character));
            &here[character.map_or(1, str::len)..]
        };
    }
    found
}

/// Where a string literal ends, from its opening quote on.
fn end_of(opened: &str) -> usize {
    let mut escaped = false;
    let closes = |character: char| {
        let closes = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        closes
    };
    opened.find(closes).unwrap()
}

/// The sentences of a text, the cells of its tables and the lines of its commands, each with single spaces.
fn sentences(text: &str) -> Vec<String> {
    let (mut parts, mut code) = (vec![String::new()], false);
    for line in text.lines().map(str::trim) {
        let fence = line.starts_with("```");
        code ^= fence;
        if code || fence || line.is_empty() || line.starts_with(['-', '*', '|', '#']) {
            parts.push(String::new());
        }
        let last = parts.last_mut().unwrap();
        last.push(' ');
        last.push_str(line);
    }
    let cells = parts.iter().flat_map(|part| part.split('|')).flat_map(|cell| cell.split(". "));
    cells.map(|sentence| sentence.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// True if a sentence advises something after which data may be gone.
fn advises(sentence: &str) -> bool {
    // A word before a comma says nothing about the verb behind it.
    let sentence = sentence.to_lowercase().replace([',', ';', '(', ')', '`'], " , ");
    let is_word = |character: char| character.is_ascii_alphanumeric() || "-_,".contains(character);
    let words: Vec<&str> =
        sentence.split(|character: char| !is_word(character)).filter(|word| !word.is_empty()).collect();
    (0..words.len()).any(|at| {
        let before = if at == 0 { "" } else { words[at - 1] };
        let next: Vec<&str> = words[at + 1..].iter().copied().filter(|word| *word != ",").take(REACH).collect();
        let names = |things: &[&str]| next.iter().any(|word| things.contains(word));
        match words[at] {
            "abandon-clusters" | "abandon_clusters" | "declare-over" | "unjoin" => true,
            _ if BEFORE.contains(&before) || next.first().is_some_and(|word| NONE.contains(word)) => false,
            "delete" => names(THINGS) || names(DELETED),
            "abandon" => names(ABANDONED),
            "declare" => names(&["again", "another", "over"]),
            word => VERBS.contains(&word) && names(THINGS),
        }
    })
}
