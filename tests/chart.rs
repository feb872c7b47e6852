//! The chart: Helm accepts it, and the flags that it gives are flags that the program has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{path::Path, process::Command};

use serde::Deserialize as _;
use serde_json::Value;

fn helm(arguments: &[&str]) -> (bool, String) {
    let tools = rig::tools(None).expect("the tools are built");
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/mczk");
    let output = Command::new(tools.join("helm"))
        .args([&arguments[..1], &["release", chart.to_str().unwrap()], &arguments[1..]].concat())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn rendered(values: &[&str]) -> Vec<Value> {
    let (fine, text) = helm(&[&["template", "--namespace", "sys"], values].concat());
    assert!(fine, "{text}");
    serde_yaml::Deserializer::from_str(&text).map(|d| Value::deserialize(d).unwrap()).filter(Value::is_object).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|o| o["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn the_flags_are_the_programs() {
    let objects = rendered(&["--set", "karmada.context=c,serverImage=other:1"]);
    let container = of_kind(&objects, "Deployment").pointer("/spec/template/spec/containers/0").unwrap();
    let arguments: Vec<&str> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    let help = Command::new(env!("CARGO_BIN_EXE_mczk")).args(["operator", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in arguments.iter().filter_map(|a| a.split('=').next()).filter(|a| a.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")), "the program has no flag {flag}");
    }
    assert!(arguments.contains(&"--server-image=other:1") && arguments.contains(&"--context=c"), "{arguments:?}");
}

#[test]
fn the_pod_is_restricted() {
    let objects = rendered(&[]);
    let pod = of_kind(&objects, "Deployment").pointer("/spec/template/spec").unwrap();
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let security = &pod["containers"][0]["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
    let service = of_kind(&objects, "Service");
    let labels = of_kind(&objects, "Deployment").pointer("/spec/template/metadata/labels").unwrap();
    for (key, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(&labels[key], value, "the Service finds the pod");
    }
}

#[test]
fn wrong_values_are_refused() {
    for wrong in ["replicas=3", "webhook.port=80", "log.format=xml", "log.level=inf", "image.repository="] {
        let (fine, text) = helm(&["template", "--set", wrong]);
        assert!(!fine, "{wrong} was accepted");
        let field = wrong.split(['=', '.']).next().unwrap();
        assert!(text.contains(field), "{wrong}: {text}");
    }
}
