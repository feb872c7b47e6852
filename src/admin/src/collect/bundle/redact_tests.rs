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
#[case::environment(json!({ "env": [{ "name": "DB_PASSWORD", "value": LEAK }, { "name": "MODE", "value": LEAK }, { "name": "MCZK_POD", "value": "zk-0" }] }),
                    json!({ "env": [{ "name": "DB_PASSWORD", "value": REDACTED }, { "name": "MODE", "value": REDACTED }, { "name": "MCZK_POD", "value": "zk-0" }] }))]
#[case::environment_as_a_map(json!({ "env": { "MODE": LEAK }, "labels": { "env": "prod" } }), json!({ "env": { "MODE": REDACTED }, "labels": { "env": "prod" } }))]
#[case::environment_by_a_rule(json!({ "path": "/spec/containers/0/env/0/value", "value": LEAK }), json!({ "path": "/spec/containers/0/env/0/value", "value": REDACTED }))]
#[case::environment_by_reference(
    json!({ "env": [{ "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } }] }),
    json!({ "env": [{ "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } }] })
)]
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

/// Forms of credentials as programs, files and commands write them. Each is a text of its own, of a log, and of an annotation.
#[rstest]
// ZooKeeper.
#[case::super_digest("-Dzookeeper.DigestAuthenticationProvider.superDigest=super:LEAK")]
#[case::super_digest_in_zoo_cfg("tickTime=2000\nDigestAuthenticationProvider.superDigest=super:LEAK\nclientPort=2181")]
#[case::zoo_cfg_with_spaces("ssl.quorum.keyStore.password = LEAK")]
#[case::setting_in_a_log("[main:QuorumPeerConfig@1] - metricsProvider.ssl.keyStore.password=LEAK is set")]
#[case::jaas_super("Server {\n  DigestLoginModule required\n  user_super=\"LEAK\";\n};")]
#[case::jaas_another_user("DigestLoginModule required user_bob='LEAK' ;")]
#[case::jaas_client("Client { DigestLoginModule required username=\"bob\" password=\"two LEAK\"; };")]
#[case::jaas_in_a_json_string(r#"{"jaas":"user_super=\"LEAK\""}"#)]
#[case::add_auth("addauth digest super:LEAK")]
#[case::add_auth_in_quotes("addauth digest 'super:LEAK'")]
#[case::scheme("authenticated digest:super:LEAK now")]
#[case::four_words_of_a_shell("zkCli.sh addauth digest bob:LEAK && getAcl /")]
// Java.
#[case::key_store("-Djavax.net.ssl.keyStorePassword=LEAK -Xmx1g")]
#[case::key_tool("keytool -list -keystore a.jks -storepass LEAK")]
#[case::key_pass("keytool -keypass 'two LEAK' -alias a")]
#[case::java_agent("-javaagent:/opt/a.jar=endpoint=x,apiKey=LEAK")]
// JSON, YAML, XML and TOML.
#[case::json_key(r#"{"apiKey": "two LEAK", "port": 1}"#)]
#[case::json_key_alone(r#"{"key": "LEAK"}"#)]
#[case::json_auth(r#"{"auths":{"r.example":{"auth":"LEAK"}}}"#)]
#[case::json_pair(r#"{"name":"DB_PASSWORD","value":"two LEAK"}"#)]
#[case::cut_json(r#"...,"name":"DB_PASSWORD","value":"LEAK"#)]
#[case::yaml("user: bob\npass: two LEAK\nport: 1")]
#[case::yaml_block("a:\n  password: |\n    LEAK\n    LEAK\nb: 1\n")]
#[case::yaml_folded("x\ntoken: >-\n  LEAK\n\n  LEAK\n")]
#[case::yaml_list("passwords:\n- LEAK\n- a LEAK\n")]
#[case::yaml_map("credentials:\n  bob: LEAK\n  eve: LEAK\n")]
#[case::yaml_pair("env:\n- name: DB_PASSWORD\n  value: LEAK\n")]
#[case::yaml_documents("a: 1\n---\nsecret:\n  x: LEAK\n")]
#[case::xml("<bean><password>two LEAK</password></bean>")]
#[case::xml_property(r#"<property name="password" value="two LEAK"/>"#)]
#[case::xml_of_hadoop("<name>fs.secret.key</name> <value>LEAK</value>")]
#[case::toml("[db]\npassword = 'two LEAK'")]
#[case::quotes_in_json_in_json(r#"{\"password\":\"a\\\"LEAK\",\"b\":1}"#)]
#[case::quotes_in_yaml("auth: 'it''s LEAK'\nport: 1")]
#[case::quotes_in_rust(r#"password: Some("a \" LEAK")"#)]
#[case::go(r#"password := "two LEAK""#)]
#[case::rust_debug(r#"Login { user: "bob", password: Some("two LEAK") }"#)]
#[case::go_map("map[password:LEAK]")]
#[case::ruby(r#"{ :password => "two LEAK" }"#)]
// The environment, shells, commands and files.
#[case::variable("export DB_PW=LEAK")]
#[case::docker("docker run -e API_KEY=LEAK -e MODE=x zookeeper")]
#[case::curl("curl -u bob:LEAK https://a.example")]
#[case::netrc("machine a.example login bob password LEAK")]
#[case::docker_configuration(".dockerconfigjson: eyJhdXRocyI6eyJyIjp7ImF1dGgiOiJLEAK")]
#[case::kubeconfig("    client-key-data: LEAK")]
#[case::kubeconfig_pem("    certificate-authority-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSLEAK")]
#[case::join_token("karmadactl register 10.0.0.1:6443 --token abcdef.LEAK")]
// HTTP.
#[case::url("jdbc:mysql://bob:LEAK@db.example/x")]
#[case::url_with_a_slash("https://bob:two/LEAK@db.example/x")]
#[case::query("GET /x?access_token=LEAK&b=1")]
#[case::signed_url("https://a.example/x?se=1&sig=LEAK")]
#[case::basic("sent Basic dXNlcjLEAK=")]
#[case::bearer("bearer   LEAK")]
#[case::cookie("Set-Cookie: session=LEAK; path=/")]
#[case::api_key_header("X-Api-Key: LEAK")]
#[case::vault_header("> X-Vault-Token: LEAK")]
// By their shape alone.
#[case::pem("-----BEGIN OPENSSH PRIVATE KEY-----\nLEAK\n-----END OPENSSH PRIVATE KEY-----")]
#[case::pgp("-----BEGIN PGP PRIVATE KEY BLOCK-----\nLEAK\n-----END PGP PRIVATE KEY BLOCK-----")]
#[case::json_in_base64("x eyJwYXNzd29yZCI6ImEiLCJiIjLEAK y")]
#[case::token_in_base64("x ZXlKaGJHY2lPaUpTVXpJMU5pSXNLEAK y")]
#[case::github("cloned with ghp_0123456789abcdefLEAK")]
#[case::age("AGE-SECRET-KEY-1LEAK")]
fn forms_of_credentials(#[case] form: &str) {
    // A marker that fits every alphabet of these forms.
    let leak = "h0rseBattery9";
    let form = form.replace("LEAK", leak);
    assert!(form.contains(leak));
    let hidden = |text: &str| !text.contains(leak) && !text.contains("Battery");
    assert!(hidden(&text(&form)), "as a text: {}", text(&form));
    let line = format!("2026-11-23T06:15:01Z INFO {form}");
    assert!(hidden(&text(&line)), "in a log: {}", text(&line));
    let object = redacted(&json!({ "metadata": { "annotations": { "example.io/note": form } } }));
    assert!(hidden(&object.to_string()), "in an annotation: {object}");
}

/// Forms that only a file has, or an annotation that holds one.
#[rstest]
#[case::zoo_cfg("tickTime=2000\nssl.trustStore.password=two LEAK\n")]
#[case::variables("MODE=x\nDB_PASS=two LEAK\n")]
#[case::environment("env:\n- name: MODE\n  value: a LEAK\n")]
#[case::secret("kind: Secret\nmetadata:\n  name: a\nstringData:\n  user: LEAK\n")]
#[case::secrets("kind: SecretList\nitems:\n- metadata:\n    name: a\n  data:\n    user: LEAK\n")]
#[case::last_applied("metadata:\n  annotations:\n    kubectl.kubernetes.io/last-applied-configuration: LEAK\n")]
#[case::configuration_in_a_config_map("data:\n  app.yaml: |\n    db:\n      auth: LEAK\n")]
fn files_in_annotations(#[case] form: &str) {
    let object = redacted(&json!({ "metadata": { "annotations": { "example.io/note": form.replace("LEAK", LEAK) } } }));
    assert!(!object.to_string().contains(LEAK), "{object}");
}

#[test]
fn digests_and_tokens_are_known_by_their_shape() {
    for form in [
        "'digest,'super:xQJmxLMiHGwaqBvst5y6rkB6HQs=\n: cdrwa",
        "ids are super:xQJmxLMiHGwaqBvst5y6rkB6HQs= and more",
        "the user AKIAXQJM01234567890A",
        "kubeadm join with abcdef.xqjm0123456789zz",
    ] {
        assert!(!text(form).to_lowercase().contains("xqjm"), "{}", text(form));
    }
}

/// What a supporter needs: names, reasons, versions, ports.
#[rstest]
#[case::event_name("orders.187fa3b4c5d6e7f8: Readiness probe failed")]
#[case::event_of_a_server("zk-abc123.187fa3b4c5d6e7f8")]
#[case::host_name("zk-abc123.zookeeperservice.svc.cluster.local:2888:3888:participant;0.0.0.0:2181")]
#[case::zookeeper(
    "2026-11-23 05:23:26,282 [myid:1] - ERROR [SyncThread:1:ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : SyncThread:1"
)]
#[case::zookeeper_sessions(
    "2026-11-23 05:23:26,282 [myid:1] - INFO  [CommitProcessor:2:LearnerSessionTracker@116] - Committing global session 0x200000b24c30000"
)]
#[case::mczk(r#"{"host":"zk-abc123-0.m1","id":1,"level":"INFO","message":"ZooKeeper starts","target":"mczk::server"}"#)]
#[case::zoo_cfg(
    "tickTime=2000\nclientPort=2181\nssl.clientAuth=need\nssl.quorum.keyStore.location=/tmp/quorum.pem\nssl.quorum.keyStore.type=PEM"
)]
#[case::authentication_settings(
    "quorum.auth.enableSasl=false\nauthProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
)]
#[case::image("Pulled docker-pullable://r.example:5000/library/zookeeper@sha256:0123456789abcdef")]
#[case::versions("zookeeper 3.9.4-7246445, built on 2025-08-19; Kubernetes v1.34.1; Java 17.0.9")]
#[case::ports("ports 2888, 3888 and 8443 of zk-abc123-0.m2: Refused")]
#[case::missing_secret("Secret \"zk-client\" lacks tls.key: create it in the control plane")]
#[case::prose("Basic authentication is off, and the token expired: authentication failed")]
#[case::condition("False CredentialsMissing The Secrets zk-a and zk-b do not exist")]
#[case::flags("mczk server --address :: --data /data --config-dir /etc/mczk")]
#[case::flag_after_a_word("the client-auth failed")]
fn what_support_needs_stays_in_texts(#[case] form: &str) {
    assert_eq!(text(form), form);
    let object = json!({ "message": form });
    assert_eq!(redacted(&object), object);
}

#[rstest]
#[case::toleration(json!({ "tolerations": [{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" }] }))]
#[case::affinity(json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }], "topologyKey": "kubernetes.io/hostname" }))]
#[case::taint(json!({ "taints": [{ "key": "dedicated", "value": "zookeeper", "effect": "NoSchedule" }] }))]
#[case::image(json!({ "imageID": "r.example/zookeeper@sha256:01ab", "imageDigest": "sha256:01ab" }))]
#[case::container(json!({ "name": "zookeeper", "ports": [{ "name": "client", "containerPort": 2181 }], "restartCount": 2 }))]
#[case::condition(json!({ "type": "Blocked", "status": "True", "reason": "SecretMissing", "message": "Secret zk-client does not exist" }))]
#[case::setting(json!({ "zooCfg": [{ "name": "tickTime", "value": "2000" }], "jvmFlags": ["-Xmx1g", "-Dzookeeper.extendedTypesEnabled=true"] }))]
#[case::hashes(json!({ "specHash": "3-01ab", "annotations": { "mczk.io/applied-hash": "01ab" } }))]
#[case::several_lines(json!({ "message": "ZooKeeper exited: signal 9; its last lines:\nERROR - x: y\nat z" }))]
fn what_support_needs_stays_in_objects(#[case] object: Value) {
    assert_eq!(redacted(&object), object);
}
