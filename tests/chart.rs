//! The charts: Helm accepts them, and the program has the flags that they pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{path::Path, process::Command};

use mczk_api::yaml;
use serde_json::Value;

use rstest::rstest;

mod program;

/// The charts, each with the subcommand of its pods.
const OPERATOR: (&str, &str) = ("mczk", "operator");
const AGENT: (&str, &str) = ("mczk-agent", "agent");

/// Times of the election.
const LEASE: &str = "lease.durationSeconds=60,lease.renewDeadlineSeconds=40,lease.retryPeriodSeconds=5";

fn helm(chart: &str, arguments: &[&str]) -> (bool, String) {
    let tools = rig::tools(None).expect("the rig has built the tools");
    let chart = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("charts").join(chart);
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
    yaml::read(text).unwrap().into_iter().filter(Value::is_object).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|o| o["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn the_manifest_of_the_operator_is_current() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("manifests");
    let helm = rig::tools(None).expect("the rig has built the tools").join("helm");
    let output = Command::new(folder.join("operator.sh")).arg(helm).output().unwrap();
    let file = std::fs::read_to_string(folder.join("operator.yaml")).unwrap_or_default();
    assert!(
        file == String::from_utf8(output.stdout).unwrap(),
        "manifests/operator.yaml differs from the chart: run `make manifests` and commit the result"
    );
}

#[rstest]
#[case(OPERATOR, "karmada.context=c,karmada.kubeconfigSecret.renew=true,serverImage=other:1", &["--server-image=other:1", "--context=c"])]
#[case(OPERATOR, "dashboard.enabled=true,dashboard.port=9000", &["--dashboard-address=[::]:9000"])]
#[case(OPERATOR, "otlpEndpoint=http://c:4318", &["--otlp-endpoint=http://c:4318"])]
#[case(AGENT, "otlpEndpoint=http://c:4318", &["--otlp-endpoint=http://c:4318"])]
#[case(OPERATOR, LEASE, &["--lease-duration-seconds=60", "--lease-renew-deadline-seconds=40", "--lease-retry-period-seconds=5"])]
#[case(AGENT, LEASE, &["--lease-duration-seconds=60", "--lease-renew-deadline-seconds=40", "--lease-retry-period-seconds=5"])]
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
    let help = Command::new(program::mczk()).args([subcommand, "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in arguments.iter().filter_map(|a| a.split('=').next()).filter(|a| a.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")), "the program has no flag {flag}");
    }
    assert!(flags.iter().all(|flag| arguments.contains(flag)), "{arguments:?}");
}

/// The values of a hook that runs `mczk install`.
const HOOKED: &str = "install.enabled=true,service.port=9443,webhook.path=/own,webhook.tlsSecret=own-tls,\
                      webhook.certificateIssuer=ClusterIssuer/company,karmada.kubeconfigSecret.name=own-kubeconfig";

fn hooks<'a>(all: &'a [Value], event: &str) -> Vec<&'a Value> {
    let events = |object: &Value| object.pointer("/metadata/annotations/helm.sh~1hook").cloned().unwrap_or_default();
    let has = |object: &&Value| events(object).as_str().is_some_and(|all| all.split(',').any(|one| one == event));
    all.iter().filter(has).collect()
}

fn arguments(pod: &Value) -> Vec<&str> {
    pod["containers"][0]["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect()
}

fn help(subcommand: &str) -> String {
    let output = Command::new(program::mczk()).args([subcommand, "--help"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// `mczk install` must write the Secrets that the operator mounts, and register the port and path that it serves.
#[rstest]
#[case::installation("install")]
#[case::upgrade("upgrade")]
#[case::rollback("rollback")]
fn the_hooks_surround_the_operator_and_have_its_settings(#[case] change: &str) {
    let all = rendered(OPERATOR.0, &["--set", HOOKED]);
    let jobs = |when: &str| {
        let hooks = hooks(&all, &format!("{when}-{change}"));
        let kinds: Vec<&str> = hooks.iter().map(|hook| hook["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "Job"], "{when}-{change}");
        hooks[3].pointer("/spec/template/spec").unwrap()
    };
    let help = help("install");
    let operator = of_kind(&all, "Deployment").pointer("/spec/template/spec").unwrap();
    let mounted = |volume: &str| {
        let volumes = operator["volumes"].as_array().unwrap();
        let found = volumes.iter().find(|found| found["name"] == volume).unwrap();
        found["secret"]["secretName"].as_str().unwrap().to_owned()
    };
    for (when, stage) in [("pre", "prepare"), ("post", "finish")] {
        let arguments = arguments(jobs(when));
        for expected in [
            format!("--stage={stage}"),
            format!("--service-port={}", of_kind(&all, "Service")["spec"]["ports"][0]["port"]),
            "--webhook-path=/own".to_owned(),
            "--certificate-issuer=ClusterIssuer/company".to_owned(),
            format!("--tls-secret={}", mounted("tls")),
            format!("--kubeconfig-secret={}", mounted("karmada")),
        ] {
            assert!(arguments.contains(&expected.as_str()), "{expected} in {arguments:?}");
        }
        for flag in arguments.iter().filter_map(|a| a.split('=').next()).filter(|a| a.starts_with("--")) {
            assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")), "no flag {flag}");
        }
    }
    assert!(arguments(operator).contains(&"--webhook-path=/own"));
}

/// Helm would refuse the wait of a hook after its own timeout of five minutes.
#[test]
fn a_hook_has_few_rights_and_waits_less_than_helm() {
    let all = rendered(OPERATOR.0, &["--set", "install.enabled=true"]);
    let hooks = hooks(&all, "post-upgrade");
    assert!(arguments(hooks[3].pointer("/spec/template/spec").unwrap()).contains(&"--wait-seconds=240"));
    let rules = hooks[1]["rules"].as_array().unwrap();
    for rule in rules {
        let (text, verbs) = (rule.to_string(), rule["verbs"].to_string());
        assert!(!text.contains('*'), "{text}");
        assert!(
            !verbs.contains("delete")
                || rule["resourceNames"] == serde_json::json!(["mczk-webhook-tls", "mczk-webhook-tls-trial"]),
            "{text}"
        );
        assert!(!text.contains("certificates") || !verbs.contains("create"), "without an issuer: {text}");
    }
}

#[rstest]
#[case::issuer_without_the_hook("webhook.certificateIssuer=Issuer/a", "install.enabled=true")]
#[case::key_that_install_does_not_write("install.enabled=true,karmada.kubeconfigSecret.key=own", "key=kubeconfig")]
fn values_that_exclude_each_other(#[case] set: &str, #[case] expected: &str) {
    let (fine, text) = helm(OPERATOR.0, &["template", "--set", set]);
    assert!(!fine && text.contains(expected), "{text}");
}

/// `helm test` needs no right in the host, and the Service must not send Karmada's calls to its pod.
#[test]
fn the_test_calls_the_webhook_with_the_operators_credential() {
    let all = rendered(OPERATOR.0, &["--set", "karmada.context=c,karmada.kubeconfigSecret.key=own"]);
    let tests = hooks(&all, "test");
    let [test] = tests.as_slice() else { panic!("{tests:?}") };
    let pod = &test["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["restartPolicy"], "Never");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(arguments(pod), ["check-webhook", "--kubeconfig=/etc/mczk/karmada/own", "--context=c"]);
    let help = help("check-webhook");
    assert!(help.contains("--kubeconfig ") && help.contains("--context "), "{help}");
    let selector = of_kind(&all, "Service")["spec"]["selector"].as_object().unwrap().clone();
    let labels = &test["metadata"]["labels"];
    assert!(selector.iter().any(|(label, value)| labels[label] != *value), "{labels}");
    let operator = of_kind(&all, "Deployment").pointer("/spec/template/spec/volumes/1/secret/secretName");
    assert_eq!(pod.pointer("/volumes/0/secret/secretName"), operator);
}

#[test]
fn the_notes_name_manual_steps_only_without_the_hook() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("charts/mczk/templates/NOTES.txt");
    let notes = std::fs::read_to_string(path).unwrap();
    let hooked = notes.split("{{- else -}}").next().unwrap();
    assert!(hooked.starts_with("{{- if .Values.install.enabled -}}"), "{notes}");
    assert!(!hooked.contains("mczk register") && !hooked.contains("mczk certs"), "{hooked}");
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

#[rstest]
#[case::default(&[], "PreferDualStack", &[])]
#[case::chosen(&["--set", "service.ipFamilyPolicy=SingleStack,service.ipFamilies={IPv6}"], "SingleStack", &["IPv6"])]
fn the_service_has_address_families(#[case] set: &[&str], #[case] policy: &str, #[case] families: &[&str]) {
    let objects = rendered(OPERATOR.0, set);
    let spec = &of_kind(&objects, "Service")["spec"];
    assert_eq!(spec["ipFamilyPolicy"], policy);
    let shown = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
    assert_eq!(shown, families);
}

/// Off by default. If it is on, it has a Service of its own inside the cluster, and a rule of the `NetworkPolicy`.
#[test]
fn the_dashboard_is_reached_only_if_enabled() {
    let named = |set: &str| {
        let text: Vec<String> = rendered(OPERATOR.0, &["--set", set]).iter().map(Value::to_string).collect();
        text.iter().filter(|object| object.contains("dashboard")).count()
    };
    assert_eq!(named("networkPolicy.enabled=true"), 0);
    assert_eq!(named("networkPolicy.enabled=true,dashboard.enabled=true"), 3, "Deployment, Service, NetworkPolicy");

    let set = "networkPolicy.enabled=true,dashboard.enabled=true,dashboard.port=9000,service.type=LoadBalancer";
    let all = rendered(OPERATOR.0, &["--set", set]);
    let is_page = |service: &Value| service["metadata"]["name"].as_str().unwrap().ends_with("-dashboard");
    let (pages, webhooks): (Vec<_>, Vec<_>) =
        all.iter().filter(|object| object["kind"] == "Service").partition(|service| is_page(service));
    let ([page], [webhook]) = (&pages[..], &webhooks[..]) else { panic!("{pages:?} {webhooks:?}") };
    let ports = |service: &Value| service["spec"]["ports"].as_array().unwrap().len();
    assert_eq!((&page["spec"]["type"], ports(page)), (&Value::from("ClusterIP"), 1));
    assert_eq!((&webhook["spec"]["type"], ports(webhook)), (&Value::from("LoadBalancer"), 1));
    assert_eq!(page["spec"]["ports"][0]["port"], 9000);
    assert_eq!(page["spec"]["selector"], webhook["spec"]["selector"]);
    let rules = of_kind(&all, "NetworkPolicy")["spec"]["ingress"].as_array().unwrap().clone();
    let open: Vec<_> = rules.iter().filter(|rule| rule.get("from").is_none()).map(Value::to_string).collect();
    assert!(!open.concat().contains("dashboard"), "{open:?}");
    assert!(rules[1]["from"][0].get("namespaceSelector").is_some(), "{rules:?}");
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
    let snapshot = "src/rules/src/agent/render/released/version_1.yaml";
    let rendered =
        std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(snapshot)).unwrap();
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

/// The port of the metrics is not on the Service of the webhook, which may be reachable from outside the cluster.
#[test]
fn the_operator_is_monitored_if_enabled() {
    assert!(!rendered("mczk", &[]).iter().any(|o| o["kind"] == "ServiceMonitor"));
    let all = rendered("mczk", &["--set", "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus"]);
    let monitor = of_kind(&all, "ServiceMonitor");
    assert_eq!(monitor.pointer("/metadata/labels/release").unwrap(), "prometheus");
    // Otherwise Prometheus would replace the namespace of the ensemble by that of the operator.
    assert_eq!(monitor.pointer("/spec/endpoints/0/honorLabels").unwrap(), true);
    let selector = monitor.pointer("/spec/selector/matchLabels").unwrap().as_object().unwrap();
    let selected = |o: &&Value| {
        o["kind"] == "Service" && selector.iter().all(|(label, value)| &o["metadata"]["labels"][label] == value)
    };
    let services: Vec<&Value> = all.iter().filter(selected).collect();
    let [service] = services.as_slice() else { panic!("one Service is selected: {services:?}") };
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(service["spec"]["ports"][0]["name"], *monitor.pointer("/spec/endpoints/0/port").unwrap());
    let deployment = of_kind(&all, "Deployment");
    assert_eq!(&service["spec"]["selector"], deployment.pointer("/spec/selector/matchLabels").unwrap());
    let ports = deployment.pointer("/spec/template/spec/containers/0/ports").unwrap().as_array().unwrap();
    let target = &service["spec"]["ports"][0]["targetPort"];
    assert!(ports.iter().any(|port| &port["name"] == target), "the pod has the port {target}");
}

/// The rules are those of the plain file, which promtool tests, with the links.
#[rstest]
fn alerts_are_those_of_the_rules_file(#[values(OPERATOR, AGENT)] (chart, _): (&str, &str)) {
    assert!(!rendered(chart, &[]).iter().any(|o| o["kind"] == "PrometheusRule"));
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("charts").join(chart).join("alerts/rules.yaml");
    let file = std::fs::read_to_string(path).unwrap();
    let spec = |set: &str| {
        let set = format!("prometheusRule.enabled=true,prometheusRule.labels.release=prometheus{set}");
        let all = rendered(chart, &["--set", &set]);
        let rule = of_kind(&all, "PrometheusRule");
        assert_eq!(rule.pointer("/metadata/labels/release").unwrap(), "prometheus");
        rule["spec"].clone()
    };
    assert_eq!(spec(""), yaml::read(&file).unwrap().remove(0));
    let linked = file.replace("runbook_url: docs/", "runbook_url: https://example.org/mczk/");
    assert_ne!(linked, file);
    let linked: Value = yaml::read(&linked).unwrap().remove(0);
    assert_eq!(spec(",prometheusRule.docsUrl=https://example.org/mczk/"), linked);
}

#[test]
fn the_dashboard_of_grafana_is_the_file() {
    assert!(!rendered("mczk", &[]).iter().any(|o| o["kind"] == "ConfigMap"));
    let all =
        rendered("mczk", &["--set", "grafanaDashboard.enabled=true,grafanaDashboard.annotations.grafana_folder=mczk"]);
    let map = of_kind(&all, "ConfigMap");
    assert_eq!(map.pointer("/metadata/labels/grafana_dashboard").unwrap(), "1");
    assert_eq!(map.pointer("/metadata/annotations/grafana_folder").unwrap(), "mczk");
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("charts/mczk/dashboards/mczk.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(map["data"]["mczk.json"].as_str().unwrap()).unwrap(), file);
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
    assert_eq!(
        resources,
        ["zookeepers", "zookeepers/status", "nodes", "persistentvolumes", "storageclasses", "namespaces"]
    );
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
    let manifest =
        std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("manifests/agent.yaml"))
            .unwrap();
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
#[case(OPERATOR, &["replicas=9", "webhook.port=80", "log.format=xml", "log.level=inf", "image.repository=", "serviceMonitor.interval=often", "serviceMonitor.port=1", "prometheusRule.docsUrl=docs", "dashboard.port=443", "install.waitSeconds=-1", "webhook.certificateIssuer=company", "grafanaDashboard.enabled=maybe", "otlpEndpoint=collector:4317", "lease.durationSeconds=0", "service.ipFamilyPolicy=Both", "service.ipFamilies={IPv5}"])]
#[case(AGENT, &["replicas=0", "cluster=3", "namespaces={A}", "podMonitor.interval=often", "prometheusRule.docsUrl=docs", "log.format=xml", "log.level=inf", "image.repository=", "otlpEndpoint=collector:4317", "lease.retryPeriodSeconds=often"])]
fn invalid_values_are_refused(#[case] (chart, _): (&str, &str), #[case] all: &[&str]) {
    for wrong in all {
        let (fine, text) = helm(chart, &["template", "--set", wrong]);
        assert!(!fine, "{wrong} was accepted");
        let field = wrong.split(['=', '.']).next().unwrap();
        assert!(text.contains(field), "{wrong}: {text}");
    }
}
