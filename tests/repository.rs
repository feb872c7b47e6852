//! What builds and checks this repository: no check is skipped without a word, and no build takes what it was not given.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use rstest::rstest;
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs `make deny` with a program in place of Cargo. `refused` are its arguments that fail.
fn deny(refused: &str, variables: &[(&str, &str)], skipped: &Path) -> Output {
    let folder = TempDir::new().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, format!("#!/bin/sh\ncase \"$*\" in {refused}) exit 1 ;; esac\n")).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new("make")
        .args(["--no-print-directory", "--old-file=require-deny", "deny"])
        .arg(format!("CARGO={}", cargo.display()))
        .current_dir(ROOT)
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("CI")
        .env_remove("REQUIRED")
        .env("MCZK_SKIPPED", skipped)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[rstest]
#[case::all_runs("nothing", &[("CI", "true"), ("REQUIRED", "1")], true, 0)]
#[case::no_program("'deny --version'", &[], true, 4)]
#[case::no_program_in_ci("'deny --version'", &[("CI", "true")], false, 4)]
#[case::no_program_in_a_release("'deny --version'", &[("REQUIRED", "1")], false, 4)]
#[case::no_advisories("*fetch*", &[], true, 1)]
#[case::no_advisories_in_ci("*fetch*", &[("CI", "true")], true, 1)]
#[case::no_advisories_in_a_release("*fetch*", &[("CI", "true"), ("REQUIRED", "1")], false, 1)]
#[case::an_advisory("*advisories", &[], false, 0)]
#[case::a_licence("*licenses*", &[], false, 0)]
fn a_check_of_the_crates_that_cannot_run_is_counted(
    #[case] refused: &str,
    #[case] variables: &[(&str, &str)],
    #[case] passes: bool,
    #[case] skipped: usize,
) {
    let noted = tempfile::NamedTempFile::new().unwrap();
    let output = deny(refused, variables, noted.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), passes, "{said}");
    let names = fs::read_to_string(noted.path()).unwrap();
    assert_eq!(names.lines().count(), skipped, "{names}");
    let number = if skipped == 1 { "1 check skipped: ".to_owned() } else { format!("{skipped} checks skipped: ") };
    assert_eq!(said.contains(&number), skipped > 0, "{said}");
}

#[test]
fn the_end_of_a_run_counts_the_skipped_checks() {
    let noted = tempfile::NamedTempFile::new().unwrap();
    let table = || {
        let mut command = Command::new("tests/parts.sh");
        // A run in CI notes its own parts.
        command.arg("--table").current_dir(ROOT).env("MCZK_SKIPPED", noted.path()).env_remove("MCZK_PARTS");
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(table(), "checks skipped: 0\n");
    for check in ["advisories", "the program for arm64 runs", "advisories"] {
        let mut command = Command::new("tests/skipped.sh");
        command.args(["no network", check]).current_dir(ROOT).env("MCZK_SKIPPED", noted.path()).env_remove("REQUIRED");
        assert!(command.output().unwrap().status.success());
    }
    assert_eq!(table(), "checks skipped: 2: advisories, the program for arm64 runs\n");
}

#[rstest]
#[case::images("image/test.sh")]
#[case::two_families("src/runtime/src/dual_stack.rs")]
#[case::story(".ci/run")]
fn what_may_skip_a_check_counts_it(#[case] file: &str) {
    assert!(read(file).contains("tests/skipped.sh"), "{file}");
}

/// A tag can be moved to other code, a commit cannot.
#[rstest]
#[case("release")]
#[case("test")]
fn actions_are_named_by_commit(#[case] workflow: &str) {
    let text = read(&format!(".github/workflows/{workflow}.yaml"));
    let actions: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("uses: ").map(|(_, action)| action)).collect();
    assert!(actions.len() > 1);
    for action in actions {
        let (commit, version) = action.split_once('@').unwrap().1.split_once(" # v").unwrap_or((action, ""));
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
        assert!(!version.is_empty(), "{action}");
    }
}

#[test]
fn a_release_names_its_compiler() {
    let after = |text: &str, word: &str| text.split_once(word).unwrap().1.split(['-', '\n']).next().unwrap().to_owned();
    let image = after(&read("Containerfile"), "/rust:");
    assert_eq!(image.split('.').count(), 3, "{image}");
    assert_eq!(after(&read(".github/workflows/release.yaml"), "RUSTUP_TOOLCHAIN: "), image);
}

#[test]
fn an_image_is_built_without_history_and_keys() {
    let ignored = read(".dockerignore");
    for path in [".git", "target", "certs/out", "**/*.key", "**/*kubeconfig*"] {
        assert!(ignored.lines().any(|line| line == path), "{path}");
    }
}
