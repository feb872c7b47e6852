//! The charts: Helm accepts them, and the program has the flags that they pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{path::Path, process::Command};

use serde::Deserialize as _;
use serde_json::Value;

use rstest::rstest;

/// The charts, each with the subcommand of its pods.
const OPERATOR: (&str, &str) = ("mczk", "operator");
const AGENT: (&str, &str) = ("mczk-agent", "agent");

fn helm(chart: &str, arguments: &[&str]) -> (bool, String) {
    let tools = rig::tools(None).expect("the rig has built the tools");
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts").join(chart);
    let output = Command::new(tools.join("helm"))
        .args([&arguments[..1], &["release", chart.to_str().unwrap()], &arguments[1..]].concat())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn rendered(chart: &str, values: &[&str]) -> Vec<Value> {
    let (fine, text) = helm(chart, &[&["template", "--namespace", "sys"], values].concat());
    assert!(fine, "{text}");
    objects(&text)
}

fn objects(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text).map(|d| Value::deserialize(d).unwrap()).filter(Value::is_object).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|o| o["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[rstest]
#[case(OPERATOR, "karmada.context=c,serverImage=other:1", &["--server-image=other:1", "--context=c"])]
#[case(AGENT, "cluster=m1,log.format=text", &["--cluster=m1", "--log-format=text"])]
fn the_program_has_every_flag_of_a_chart(
    #[case] (chart, subcommand): (&str, &str),
    #[case] set: &str,
    #[case] flags: &[&str],
) {
    let objects = rendered(chart, &["--set", set]);
    let container = of_kind(&objects, "Deployment").pointer("/spec/template/spec/containers/0").unwrap();
    let arguments: Vec<&str> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(arguments[0], subcommand);
    let help = Command::new(env!("CARGO_BIN_EXE_mczk")).args([subcommand, "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in arguments.iter().filter_map(|a| a.split('=').next()).filter(|a| a.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")), "the program has no flag {flag}");
    }
    assert!(flags.iter().all(|flag| arguments.contains(flag)), "{arguments:?}");
}

#[rstest]
fn the_pod_is_restricted(#[values(OPERATOR, AGENT)] (chart, _): (&str, &str)) {
    let objects = rendered(chart, &[]);
    let pod = of_kind(&objects, "Deployment").pointer("/spec/template/spec").unwrap();
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let security = &pod["containers"][0]["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
}

#[test]
fn the_operators_service_selects_its_pod_which_has_no_rights_in_its_cluster() {
    let objects = rendered(OPERATOR.0, &[]);
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    let service = of_kind(&objects, "Service");
    let labels = of_kind(&objects, "Deployment").pointer("/spec/template/metadata/labels").unwrap();
    for (key, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(&labels[key], value, "the Service selects the pod");
    }
}

/// Monitors name ports that exist: of agents in the chart, of servers in the objects that agents render.
#[test]
fn pods_are_monitored_if_enabled() {
    let monitors = |set: &[&str]| {
        let all = rendered("mczk-agent", set);
        let monitors: Vec<Value> = all.iter().filter(|o| o["kind"] == "PodMonitor").cloned().collect();
        (monitors, of_kind(&all, "Deployment").clone())
    };
    assert_eq!(monitors(&[]).0, Vec::<Value>::new());
    let (monitors, deployment) = monitors(&["--set", "podMonitor.enabled=true,podMonitor.labels.release=prometheus"]);
    let [agents, servers] = monitors.as_slice() else { panic!("{monitors:?}") };
    assert_eq!(agents.pointer("/metadata/labels/release").unwrap(), "prometheus");
    let labels = agents.pointer("/spec/selector/matchLabels").unwrap();
    assert_eq!(labels, deployment.pointer("/spec/selector/matchLabels").unwrap());
    let snapshot = "src/agent/render/released/version_3.yaml";
    let rendered = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(snapshot)).unwrap();
    for (monitor, of) in
        [(agents, deployment.to_string().replace(['"', ' '], "")), (servers, rendered.replace(' ', ""))]
    {
        for endpoint in monitor.pointer("/spec/podMetricsEndpoints").unwrap().as_array().unwrap() {
            assert!(of.contains(&format!("name:{}", endpoint["port"].as_str().unwrap())), "{endpoint} in {of}");
        }
    }
    for (label, value) in servers.pointer("/spec/selector/matchLabels").unwrap().as_object().unwrap() {
        assert!(rendered.contains(&format!("{label}: {}", value.as_str().unwrap())), "{label}");
    }
    for label in servers.pointer("/spec/podTargetLabels").unwrap().as_array().unwrap() {
        assert!(rendered.contains(&format!("{}: ", label.as_str().unwrap())), "pods have the label {label}");
    }
}

/// In namespaces alone, no right that matters holds in the whole cluster.
#[test]
fn the_agents_rights_are_limited_to_namespaces() {
    let all = rendered(AGENT.0, &[]);
    let limited = rendered(AGENT.0, &["--set", "namespaces={a,b},podMonitor.enabled=true"]);
    let arguments = of_kind(&limited, "Deployment").pointer("/spec/template/spec/containers/0/args").unwrap();
    assert!(arguments.as_array().unwrap().contains(&"--namespaces=a,b".into()), "{arguments}");
    let rules = |object: &Value| object["rules"].as_array().unwrap().clone();
    let of_cluster = rules(of_kind(&limited, "ClusterRole"));
    let resources: Vec<&str> =
        of_cluster.iter().flat_map(|r| r["resources"].as_array().unwrap()).map(|r| r.as_str().unwrap()).collect();
    assert_eq!(resources, ["zookeepers", "zookeepers/status", "nodes", "persistentvolumes"]);
    for namespace in ["a", "b"] {
        let here = |kind| limited.iter().find(|o| o["kind"] == kind && o["metadata"]["namespace"] == namespace);
        let role = here("Role").unwrap();
        assert_eq!([of_cluster.clone(), rules(role)].concat(), rules(of_kind(&all, "ClusterRole")), "no right is lost");
        let bound = here("RoleBinding").unwrap();
        assert_eq!(bound["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(bound["subjects"], of_kind(&limited, "ClusterRoleBinding")["subjects"]);
    }
    let monitor = limited.iter().rfind(|o| o["kind"] == "PodMonitor").unwrap();
    assert_eq!(monitor.pointer("/spec/namespaceSelector").unwrap(), &serde_json::json!({ "matchNames": ["a", "b"] }));
}

#[test]
fn the_agents_rights_equal_those_of_the_manifest() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/agent.yaml")).unwrap();
    let (manifest, chart) = (objects(&manifest), rendered(AGENT.0, &[]));
    for kind in ["ClusterRole", "Role"] {
        let rules = |objects: &[Value]| of_kind(objects, kind)["rules"].clone();
        assert!(!rules(&chart).as_array().unwrap().is_empty());
        assert_eq!(rules(&chart), rules(&manifest), "{kind}");
    }
    let bound = of_kind(&chart, "ClusterRoleBinding");
    let account = of_kind(&chart, "ServiceAccount");
    assert_eq!(bound["subjects"][0]["name"], account["metadata"]["name"]);
    assert_eq!(bound["subjects"][0]["namespace"], "sys");
    assert_eq!(bound["roleRef"]["name"], of_kind(&chart, "ClusterRole")["metadata"]["name"]);
    let pod = of_kind(&chart, "Deployment").pointer("/spec/template/spec").unwrap();
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
}

#[rstest]
#[case(OPERATOR, &["replicas=3", "webhook.port=80", "log.format=xml", "log.level=inf", "image.repository="])]
#[case(AGENT, &["replicas=0", "cluster=3", "namespaces={A}", "podMonitor.interval=often", "log.format=xml", "log.level=inf", "image.repository="])]
fn invalid_values_are_refused(#[case] (chart, _): (&str, &str), #[case] all: &[&str]) {
    for wrong in all {
        let (fine, text) = helm(chart, &["template", "--set", wrong]);
        assert!(!fine, "{wrong} was accepted");
        let field = wrong.split(['=', '.']).next().unwrap();
        assert!(text.contains(field), "{wrong}: {text}");
    }
}
