//! `tests/dependencies.sh`: a new checkout gets what an earlier one has compiled.
#![allow(clippy::expect_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

const CRATE: &str = "deps/libonce-0123456789abcdef.rlib";

/// Cargo, as far as the script reads it: each call names one compiled crate of a registry.
fn cargo(folder: &Path, target: &Path) -> String {
    let artifact = target.join("debug").join(CRATE);
    let line = format!(
        r#"{{"reason":"compiler-artifact","package_id":"registry+https://x#once@1","filenames":["{}"]}}"#,
        artifact.display()
    );
    let script = folder.join("cargo");
    fs::write(&script, format!("#!/bin/sh\necho '{line}'\n")).expect("writes");
    let mode = Command::new("chmod").arg("+x").arg(&script).status().expect("runs");
    assert!(mode.success());
    script.display().to_string()
}

fn dependencies(command: &str, folder: &Path, target: &Path) {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../dependencies.sh"))
        .arg(command)
        .env("CARGO", cargo(folder, target))
        .env("MCZK_CACHE", folder)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{command}: {output:?}");
    assert_eq!("", String::from_utf8_lossy(&output.stderr), "{command}");
}

#[test]
fn what_one_checkout_compiled_is_there_for_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    for part in [".fingerprint", "build", "deps"] {
        fs::create_dir_all(first.join("debug").join(part)).expect("a folder");
    }
    fs::write(first.join("debug").join(CRATE), "compiled").expect("writes");
    dependencies("keep", folder.path(), &first);
    // It is kept already.
    dependencies("keep", folder.path(), &first);
    dependencies("restore", folder.path(), &second);
    assert_eq!("compiled", fs::read_to_string(second.join("debug").join(CRATE)).expect("is there"));
    let sets = fs::read_dir(folder.path().join("dependencies")).expect("is there").count();
    assert_eq!(1, sets, "nothing unfinished stays");
}
