//! The manifests for `kubectl` equal the objects that `mczk register` applies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;
use std::process::Command;

use rstest::rstest;

mod program;

/// The flags are those of the target `manifests` in the Makefile.
#[rstest]
#[case("propagation.yaml", &["--only", "propagation"])]
#[case("rbac.yaml", &["--only", "rbac"])]
#[case("interpreter.yaml", &["--only", "interpreter", "--service", "mczk-system/mczk"])]
fn the_files_are_current(#[case] name: &str, #[case] flags: &[&str]) {
    // Without an environment: its MCZK_* variables would be flags too.
    let output =
        Command::new(program::mczk()).args(["register", "--dry-run"]).args(flags).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file =
        std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("manifests").join(name));
    assert!(
        file.unwrap_or_default() == String::from_utf8(output.stdout).unwrap(),
        "manifests/{name} differs from the objects of `mczk register`: run `make manifests` and commit the result"
    );
}

#[rstest]
#[case(&["register"], "either --url or --service is required")]
#[case(&["register", "--url", "ftp://h", "--dry-run"], "--url: \"ftp://h\" is not https://")]
#[case(&["register", "--timeout-seconds", "99"], "99 is not in 1..=30")]
#[case(&["unregister", "--kubeconfig", "/nonexistent"], "cannot use the kubeconfig /nonexistent")]
fn a_wrong_command_line_is_one_line_and_exit_code_2(#[case] arguments: &[&str], #[case] expected: &str) {
    let output = Command::new(program::mczk()).args(arguments).env_clear().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(expected), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_api_server_that_does_not_answer_is_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kubeconfig = folder.join(format!("unreachable-{}.kubeconfig", std::process::id()));
    // No process listens on port 1 of this machine.
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "k", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "k", "context": {"cluster": "k", "user": "u"}}]}"#;
    std::fs::write(&kubeconfig, text).unwrap();
    let output = Command::new(program::mczk())
        .args(["register", "--only", "rbac", "--kubeconfig"])
        .arg(&kubeconfig)
        .env_clear()
        .output()
        .unwrap();
    std::fs::remove_file(kubeconfig).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("mczk: cannot reach https://127.0.0.1:1/: "), "{text}");
    assert!(text.contains("check --kubeconfig"), "{text}");
}
