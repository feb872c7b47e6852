use rstest::rstest;

use super::*;

/// A value that must never be stored.
const LEAK: &str = "h0rse-battery";

fn key() -> String {
    format!("-----BEGIN EC PRIVATE KEY-----\nMHcCAQ{LEAK}\n-----END EC PRIVATE KEY-----")
}

#[rstest]
#[case::key(&format!("a\n{}\nb", key()), "a\n[REDACTED]\nb")]
#[case::key_without_end(&format!("a\n-----BEGIN PRIVATE KEY-----\n{LEAK}"), "a\n[REDACTED]")]
#[case::key_without_beginning(&format!("{LEAK}\n-----END PRIVATE KEY-----\nb"), "[REDACTED]\nb")]
#[case::escaped_key(&key().replace('\n', "\\n"), "[REDACTED]")]
#[case::key_in_base64(&format!("client-data: LS0tLS1CRUdJTiBFQy{LEAK} end"), "client-data: [REDACTED] end")]
#[case::json_web_token(&format!("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.{LEAK} ok"), "got [REDACTED] ok")]
#[case::bearer(&format!("sent bearer {LEAK}, refused"), "sent bearer [REDACTED] refused")]
#[case::header(&format!("Authorization: Basic {LEAK} and more\nnext"), "Authorization: [REDACTED]\nnext")]
#[case::header_in_json(&format!(r#"{{"authorization":"Digest u {LEAK}"}}"#), r#"{"authorization":[REDACTED]"#)]
#[case::url(&format!("proxy http://user:{LEAK}@proxy:3128/x"), "proxy http://[REDACTED]@proxy:3128/x")]
#[case::assignment(&format!("x password={LEAK} y"), "x password=[REDACTED] y")]
#[case::after_another(&format!("url: password={LEAK}"), "url: password=[REDACTED]")]
#[case::after_a_reference(&format!("secretName=a,password={LEAK}"), "secretName=a,password=[REDACTED]")]
#[case::property(&format!("-Dzookeeper.ssl.keyStore.password={LEAK}"), "-Dzookeeper.ssl.keyStore.password=[REDACTED]")]
#[case::flag(&format!("run --token {LEAK} --other x"), "run --token [REDACTED] --other x")]
#[case::quoted(&format!("api_key: \"two {LEAK}\" z"), "api_key: [REDACTED] z")]
#[case::open_quote(&format!("secret: \"two {LEAK}\nz"), "secret: [REDACTED]\nz")]
#[case::json(&format!(r#"{{"clientSecret":"a \" {LEAK}","b":1}}"#), r#"{"clientSecret":[REDACTED],"b":1}"#)]
#[case::json_in_json(&format!(r#"{{\"token\":\"a {LEAK}\"}}"#), r#"{\"token\":[REDACTED]}"#)]
#[case::plan(
    &format!("+ spec.template.zooCfg[metricsProvider.ssl.keyStore.password].value: \"{LEAK}\""),
    "+ spec.template.zooCfg[metricsProvider.ssl.keyStore.password].value: [REDACTED]"
)]
#[case::plan_of_a_change(
    &format!("  ~ metadata.annotations.token: \"a\" -> \"{LEAK}\"\n  - b: 1"),
    "  ~ metadata.annotations.token: [REDACTED]\n  - b: 1"
)]
#[case::url_with_two_signs(&format!("http://user:p@{LEAK}@proxy"), "http://[REDACTED]@proxy")]
#[case::nothing(
    "secret \"zk-quorum\" not found, secretName: zk-quorum",
    "secret \"zk-quorum\" not found, secretName: zk-quorum"
)]
#[case::certificate("-----BEGIN CERTIFICATE-----\nabc", "-----BEGIN CERTIFICATE-----\nabc")]
fn texts(#[case] before: &str, #[case] after: &str) {
    assert_eq!(text(before), after);
    assert!(!text(before).contains(LEAK));
}

fn redacted(value: &Value) -> Value {
    document(&value.to_string()).unwrap()
}

#[test]
fn a_secret_keeps_name_type_and_keys() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "s", "namespace": "n", "annotations": { "a": LEAK }, "labels": { "l": "1" } },
        "data": { "tls.key": LEAK }, "stringData": { "user": LEAK }, "other": LEAK,
    });
    let expected = json!({
        "kind": "Secret", "type": "Opaque", "keys": ["tls.key", "user"],
        "metadata": { "name": "s", "namespace": "n", "labels": { "l": "1" } },
    });
    assert_eq!(redacted(&secret), expected);
    // A Work and a list hold the same object deeper. Items of a list have no kind.
    let work = json!({ "kind": "Work", "spec": { "workload": { "manifests": [secret.clone()] } } });
    assert_eq!(redacted(&work)["spec"]["workload"]["manifests"][0], expected);
    let mut item = secret;
    item.as_object_mut().unwrap().remove("kind");
    let list = json!({ "kind": "SecretList", "apiVersion": "v1", "items": [item, LEAK] });
    assert_eq!(redacted(&list)["items"], json!([expected, null]));
}

#[rstest]
#[case::environment(json!({ "env": [{ "name": "DB_PASSWORD", "value": LEAK }, { "name": "MODE", "value": "x" }] }),
                    json!({ "env": [{ "name": "DB_PASSWORD", "value": REDACTED }, { "name": "MODE", "value": "x" }] }))]
#[case::zoo_cfg(json!([{ "name": "ssl.keyStore.password", "value": LEAK }]), json!([{ "name": "ssl.keyStore.password", "value": REDACTED }]))]
#[case::member(json!({ "a": { "apiKey": LEAK } }), json!({ "a": { "apiKey": REDACTED } }))]
#[case::list(json!({ "Proxy-Authorization": [LEAK] }), json!({ "Proxy-Authorization": REDACTED }))]
#[case::object(json!({ "password": { "current": LEAK, "old": [LEAK] } }), json!({ "password": REDACTED }))]
#[case::objects_of_a_list(json!({ "tokens": [{ "value": LEAK }] }), json!({ "tokens": REDACTED }))]
#[case::number(json!({ "password": 20_261_123, "apiKey": true }), json!({ "password": REDACTED, "apiKey": REDACTED }))]
#[case::value_of_any_type(json!([{ "name": "DB_PASSWORD", "value": { "a": LEAK } }]), json!([{ "name": "DB_PASSWORD", "value": REDACTED }]))]
#[case::argument_of_any_type(json!(["--token", [LEAK]]), json!(["--token", REDACTED]))]
#[case::shape_of_no_reference(json!({ "secret": { "secretName": "s", "content": LEAK }, "secrets": [LEAK] }),
                              json!({ "secret": REDACTED, "secrets": REDACTED }))]
#[case::volumes(json!({ "secret": { "secretName": "s", "items": [{ "key": "tls.key", "path": "key" }] }, "serviceAccountToken": { "path": "t" } }),
                json!({ "secret": { "secretName": "s", "items": [{ "key": "tls.key", "path": "key" }] }, "serviceAccountToken": { "path": "t" } }))]
#[case::missing_secrets(json!({ "missingSecrets": ["zk-quorum"] }), json!({ "missingSecrets": ["zk-quorum"] }))]
#[case::argument(json!({ "args": ["--token", LEAK, "x"] }), json!({ "args": ["--token", REDACTED, "x"] }))]
#[case::text(json!({ "jvmFlags": [format!("-Dpassword={LEAK}")] }), json!({ "jvmFlags": ["-Dpassword=[REDACTED]"] }))]
#[case::managed_fields(json!({ "metadata": { "name": "a", "managedFields": [LEAK] } }), json!({ "metadata": { "name": "a" } }))]
#[case::last_applied(json!({ "annotations": { "kubectl.kubernetes.io/last-applied-configuration": LEAK } }), json!({ "annotations": {} }))]
#[case::nested(json!({ "a": json!({ "kind": "Secret", "data": { "x": LEAK } }).to_string() }), json!({ "a": json!({ "keys": ["x"], "kind": "Secret", "metadata": {}, "type": null }).to_string() }))]
#[case::reference_to_a_secret(json!({ "kind": "Secret", "name": "s" }), json!({ "kind": "Secret", "name": "s" }))]
#[case::references(json!({ "secretName": "s", "secretRef": { "name": "r" }, "imagePullSecrets": ["p"], "automountServiceAccountToken": false }),
                   json!({ "secretName": "s", "secretRef": { "name": "r" }, "imagePullSecrets": ["p"], "automountServiceAccountToken": false }))]
fn documents(#[case] before: Value, #[case] after: Value) {
    assert_eq!(redacted(&before), after);
}

#[test]
fn a_document_that_cannot_be_parsed_is_not_stored() {
    let error = document(&format!("{{ \"password\": \"{LEAK}\" ")).unwrap_err();
    assert!(!error.contains(LEAK), "{error}");
}
