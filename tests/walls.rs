//! What Cargo links into each crate: the walls between what decides and what acts.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

/// The output of `cargo tree` for one package.
fn tree(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(["tree", "--offline", "--prefix", "none"]);
    let output = command.args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What decides can name no client, no runtime and no connection.
#[test]
fn rules_have_no_client_and_no_runtime() {
    let tree = tree(&["--package", "mczk-rules", "--edges", "normal"]);
    let packages: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(packages.contains(&"mczk-api") && packages.contains(&"kube-core"), "{tree}");
    for wall in ["tokio", "hyper", "rustls", "kube", "kube-client"] {
        assert!(!packages.contains(&wall), "mczk-rules uses {wall}: cargo tree --package mczk-rules --invert {wall}");
    }
}

/// Only tests can break safety rules.
#[test]
fn the_program_has_no_broken_rules() {
    let tree = tree(&["--package", "mczk", "--edges", "features,normal", "--invert", "mczk-api"]);
    assert!(tree.contains("mczk-api"), "{tree}");
    assert!(!tree.contains("\"mutations\""), "{tree}");
}
