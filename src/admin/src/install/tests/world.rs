//! Karmada's API server and that of the host, as far as `mczk install` uses them, with operators that serve what is in their
//! Secret and Karmada that calls them by its registration.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use http_body_util::BodyExt as _;
use hyper::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config, client::Body};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tower::service_fn;

use super::super::{
    certificate::called_names,
    flags::InstallTargets,
    webhook_authority::{Authority, Certified, Name},
};
use crate::register::interpreter::Endpoint;

/// The control plane of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::install) enum Side {
    Karmada,
    Host,
}

/// An operator.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    created: Timestamp,
    /// Authority and certificate of each content that its Secret has had since its start.
    serves: Vec<(Vec<u8>, String)>,
    /// True once newer pods replace it.
    is_old: bool,
}

/// Everything of both control planes.
#[derive(Clone, Debug, Default)]
pub(in crate::install) struct World {
    pub(super) objects: BTreeMap<(Side, String), Value>,
    /// Certificate and key of each issuer of cert-manager.
    pub(in crate::install) issuers: BTreeMap<String, (String, String)>,
    pub(super) pods: Vec<Pod>,
    /// Writes that changed something, so far. Each takes 30 s.
    pub(in crate::install) writes: usize,
    /// Every request fails after this number of writes.
    pub(in crate::install) end: Option<usize>,
    /// Plural of a kind that no user may write.
    pub(in crate::install) forbidden: Option<&'static str>,
    /// Plural of a kind that no API server serves.
    pub(in crate::install) unserved: Option<&'static str>,
    /// True if new operators never become available.
    pub(in crate::install) operators_fail: bool,
    /// What Karmada could not call after a write.
    pub(in crate::install) broken: Vec<String>,
}

/// A path of an API server.
struct Target {
    plural: String,
    namespace: Option<String>,
    name: Option<String>,
    /// The path of the collection over all namespaces.
    collection: String,
}

impl Target {
    fn of(path: &str) -> Self {
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (head, mut rest) = words.split_at(if words[0] == "api" { 2 } else { 3 });
        let mut namespace = None;
        if rest.len() > 2 && rest[0] == "namespaces" {
            (namespace, rest) = (Some(rest[1].to_owned()), &rest[2..]);
        }
        let plural = rest[0].to_owned();
        let collection = format!("{}/{plural}", head.join("/"));
        Self { plural, namespace, name: rest.get(1).map(|name| (*name).to_owned()), collection }
    }

    fn key(&self) -> String {
        let namespace = self.namespace.clone().unwrap_or_default();
        format!("{}/{namespace}/{}", self.collection, self.name.clone().unwrap_or_default())
    }
}

fn refusal(code: u16, message: &str, details: &Value) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason });
    let mut status = status;
    json_patch::merge(&mut status, &json!({ "message": message, "details": details }));
    (code, status)
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

impl World {
    /// A Karmada and a host with a namespace each, and issuers `a` and `b`.
    pub(in crate::install) fn new() -> Self {
        let mut world = Self::default();
        for issuer in ["a", "b"] {
            world.new_issuer(issuer);
        }
        for (side, name) in [
            (Side::Karmada, "kube-system"),
            (Side::Karmada, "karmada-system"),
            (Side::Karmada, "zookeeper"),
            (Side::Host, "kube-system"),
        ] {
            let namespace = json!({ "metadata": { "name": name, "uid": "1" } });
            world.objects.insert((side, format!("api/v1/namespaces//{name}")), namespace);
        }
        world
    }

    /// Another authority of an issuer.
    pub(in crate::install) fn new_issuer(&mut self, name: &str) {
        let mut authority = Authority::make(Timestamp::now(), 3650).unwrap();
        let key = authority.new_key.take().unwrap();
        self.issuers.insert(name.to_owned(), (authority.pem, key));
    }

    /// Writes a Secret of the host as a user does.
    pub(in crate::install) fn put_secret(&mut self, name: &str, secret: &Value) {
        let target = Target::of(&format!("/api/v1/namespaces/mczk-system/secrets/{name}"));
        self.store(Side::Host, &target, secret, "another");
    }

    pub(in crate::install) fn delete_secret(&mut self, name: &str) {
        self.objects.remove(&(Side::Host, format!("api/v1/secrets/mczk-system/{name}"))).unwrap();
    }

    /// Names of the Secrets of the host.
    pub(in crate::install) fn secrets(&self) -> Vec<String> {
        let keys =
            self.objects.keys().filter_map(|(side, key)| key.strip_prefix("api/v1/secrets/").map(|key| (side, key)));
        keys.filter(|(side, _)| **side == Side::Host).map(|(_, key)| key.to_owned()).collect()
    }

    fn secret(&self, name: &str) -> Option<&Value> {
        self.objects.get(&(Side::Host, format!("api/v1/secrets/mczk-system/{name}")))
    }

    fn text(&self, secret: &str, key: &str) -> Option<String> {
        let data = self.secret(secret)?.pointer(&format!("/data/{key}"))?.as_str()?;
        String::from_utf8(STANDARD.decode(data).unwrap()).ok()
    }

    fn registration(&self) -> Option<&Value> {
        let key = "apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations//mczk";
        self.objects.get(&(Side::Karmada, key.to_owned()))
    }

    /// The authorities that Karmada trusts.
    pub(in crate::install) fn trusted(&self) -> Vec<Vec<u8>> {
        let bundle =
            self.registration().unwrap().pointer("/webhooks/0/clientConfig/caBundle").unwrap().as_str().unwrap();
        let pem = STANDARD.decode(bundle).unwrap();
        CertificateDer::pem_slice_iter(&pem).map(|found| found.unwrap().to_vec()).collect()
    }

    /// The authority of the Secret from which operators serve.
    pub(in crate::install) fn authority(&self) -> Vec<u8> {
        der(&self.text(&self.mounted().unwrap(), "ca.crt").unwrap())
    }

    fn mounted(&self) -> Option<String> {
        let deployment = self.objects.get(&(Side::Host, "apis/apps/v1/deployments/mczk-system/mczk".to_owned()))?;
        let volumes = deployment.pointer("/spec/template/spec/volumes")?.as_array()?;
        let volume = volumes.iter().find(|volume| volume["name"] == "tls")?;
        Some(volume["secret"]["secretName"].as_str()?.to_owned())
    }

    /// Lets time pass, until all operators that run have read their Secret.
    pub(in crate::install) fn wait(&mut self) {
        let content = self.content();
        self.pods.iter_mut().for_each(|pod| pod.serves = content.iter().cloned().collect());
        for object in self.objects.values_mut() {
            let begin = Timestamp::from_second(1).unwrap();
            let metadata = json!({ "creationTimestamp": begin, "managedFields": null });
            json_patch::merge(object, &json!({ "metadata": metadata }));
        }
    }

    fn now(&self) -> Timestamp {
        // Seconds, as API servers count. Times ahead of the clock are recent for the command.
        let begin = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
        begin + SignedDuration::from_secs(i64::try_from(self.writes).unwrap() * 30)
    }

    /// What the operators would serve by their Secret.
    fn content(&self) -> Option<(Vec<u8>, String)> {
        let name = self.mounted()?;
        Some((der(&self.text(&name, "ca.crt")?), self.text(&name, "tls.crt")?))
    }

    /// Notes each operator that Karmada calls and does not trust.
    fn check(&mut self, write: &str) {
        let Some(registration) = self.registration() else { return };
        let client = &registration["webhooks"][0]["clientConfig"];
        let endpoint = Endpoint::Url(client["url"].as_str().unwrap().to_owned());
        let (called, trusted) = (called_names(&endpoint).unwrap(), self.trusted());
        for (authority, certificate) in self.pods.iter().flat_map(|pod| pod.serves.clone()) {
            if !trusted.contains(&authority) {
                self.broken.push(format!("after {write}: Karmada does not trust an authority that is served"));
            }
            let names = Certified::read(&certificate).unwrap().names;
            if called.iter().any(|name| !names.contains(name)) {
                self.broken.push(format!("after {write}: a certificate lacks {called:?}"));
            }
        }
    }

    fn store(&mut self, side: Side, target: &Target, body: &Value, manager: &str) -> Value {
        let key = (side, target.key());
        let now = self.now();
        let mut object = self
            .objects
            .get(&key)
            .cloned()
            .unwrap_or_else(|| json!({ "metadata": { "uid": "1", "generation": 1, "creationTimestamp": now } }));
        let before = object.clone();
        json_patch::merge(&mut object, body);
        if object != before {
            let metadata = json!({ "resourceVersion": self.writes.to_string(), "namespace": target.namespace,
                "managedFields": [{ "manager": manager, "operation": "Apply", "time": now }] });
            json_patch::merge(&mut object, &json!({ "metadata": metadata }));
            if target.plural == "customresourcedefinitions" {
                let established = json!([{ "type": "Established", "status": "True" }]);
                json_patch::merge(&mut object, &json!({ "status": { "conditions": established } }));
            }
        }
        self.objects.insert(key, object.clone());
        if target.plural == "deployments" && object["spec"]["template"] != before["spec"]["template"] {
            self.pods.iter_mut().for_each(|pod| pod.is_old = true);
            let serves = self.content().into_iter().collect();
            self.pods.push(Pod { created: now, serves, is_old: false });
        }
        if target.plural == "certificates" && object != before {
            self.issue(&object);
        }
        if target.plural == "secrets"
            && side == Side::Host
            && let Some(content) = self.content()
        {
            self.pods
                .iter_mut()
                .filter(|pod| !pod.serves.contains(&content))
                .for_each(|pod| pod.serves.push(content.clone()));
        }
        object
    }

    /// What cert-manager does with a changed Certificate.
    fn issue(&mut self, certificate: &Value) {
        let spec = &certificate["spec"];
        let (issuer, secret) = (spec["issuerRef"]["name"].as_str().unwrap(), spec["secretName"].as_str().unwrap());
        let (pem, key) = self.issuers[issuer].clone();
        let texts = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let text = |value: Value| value.as_str().unwrap().to_owned();
        let mut names: Vec<Name> = texts("dnsNames").into_iter().map(|name| Name::Dns(text(name))).collect();
        names.extend(texts("ipAddresses").into_iter().map(|address| Name::Ip(text(address).parse().unwrap())));
        let authority = Authority::of_pem(pem.clone(), &key, Timestamp::now()).unwrap();
        let made = authority.certify(&names, Timestamp::now(), 90).unwrap();
        let data = [("tls.crt", made.pem), ("tls.key", made.key), ("ca.crt", pem)]
            .map(|(key, text)| (key, STANDARD.encode(text)));
        let annotations = json!({ "cert-manager.io/certificate-name": secret, "cert-manager.io/issuer-kind": "Issuer",
            "cert-manager.io/issuer-name": issuer });
        let metadata =
            json!({ "name": secret, "labels": spec["secretTemplate"]["labels"], "annotations": annotations });
        let body = json!({ "metadata": metadata, "type": "kubernetes.io/tls", "data": BTreeMap::from(data) });
        self.put_secret(secret, &body);
    }

    fn answer(&mut self, side: Side, request: &Request<()>, body: &Value) -> (u16, Value) {
        let (method, path) = (request.method().as_str(), request.uri().path());
        if self.end.is_some_and(|end| self.writes >= end) {
            return refusal(500, "the machine is away", &json!({}));
        }
        if path == "/apis" {
            let groups = ["policy.karmada.io", "config.karmada.io", "cert-manager.io"];
            let groups = groups.map(|name| json!({ "name": name, "versions": [] }));
            return (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }));
        }
        let target = Target::of(path);
        if self.unserved == Some(&target.plural) {
            return refusal(404, "the server could not find the requested resource", &json!({}));
        }
        let is_dry = request.uri().query().unwrap_or_default().contains("dryRun=All");
        match (method, &target.name) {
            ("POST", _) => (201, self.created(&target, body)),
            ("GET", None) => (200, self.list(side, &target)),
            ("GET", Some(name)) => match self.objects.get(&(side, target.key())) {
                Some(found) => (200, found.clone()),
                None => refusal(404, "not found", &json!({ "kind": target.plural, "name": name })),
            },
            ("DELETE", _) => {
                self.objects.remove(&(side, target.key())).unwrap();
                self.written(&format!("the removal of {}", target.key()));
                (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
            }
            ("PATCH", Some(_)) => self.apply(side, &target, body, is_dry),
            _ => panic!("{method} {path}"),
        }
    }

    fn apply(&mut self, side: Side, target: &Target, body: &Value, is_dry: bool) -> (u16, Value) {
        let mut body = body.clone();
        if target.plural == "customresourcedefinitions" {
            // Long, and without effect here.
            body["spec"]["versions"] = json!([]);
        }
        if self.forbidden == Some(&target.plural) {
            return refusal(403, &format!("User \"u\" cannot patch resource \"{}\"", target.plural), &json!({}));
        }
        if let Some(namespace) = &target.namespace
            && !self.objects.contains_key(&(side, format!("api/v1/namespaces//{namespace}")))
        {
            let details = json!({ "kind": "namespaces", "name": namespace });
            return refusal(404, &format!("namespaces \"{namespace}\" not found"), &details);
        }
        let found = self.objects.get(&(side, target.key())).cloned();
        let version = body.pointer("/metadata/resourceVersion");
        if version.is_some() && found.as_ref().and_then(|found| found.pointer("/metadata/resourceVersion")) != version {
            return refusal(409, "the object has been modified", &json!({}));
        }
        if is_dry {
            let mut object = found.unwrap_or_else(|| json!({ "metadata": {} }));
            json_patch::merge(&mut object, &body);
            return (200, object);
        }
        body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let object = self.store(side, target, &body, "mczk-register");
        if found.as_ref() != Some(&object) {
            self.written(&format!("{} {}", target.plural, target.name.as_deref().unwrap()));
        }
        (200, object)
    }

    fn written(&mut self, what: &str) {
        self.writes += 1;
        self.check(what);
    }

    fn created(&self, target: &Target, body: &Value) -> Value {
        let mut body = body.clone();
        let now = Timestamp::now().as_second();
        let payload = URL_SAFE_NO_PAD.encode(json!({ "iat": now, "exp": now + 86400 * 30 }).to_string());
        let status = match target.plural.as_str() {
            "tokenreviews" => json!({ "authenticated": true }),
            _ => json!({ "token": format!("e30.{payload}.{}", self.writes), "expirationTimestamp": Timestamp::now() }),
        };
        json_patch::merge(&mut body, &json!({ "status": status }));
        body
    }

    fn list(&mut self, side: Side, target: &Target) -> Value {
        let mut items: Vec<Value> = Vec::new();
        if target.plural == "pods" {
            let metadata = |pod: &Pod| json!({ "name": "mczk", "creationTimestamp": pod.created });
            let pod = |pod: &Pod| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata(pod) });
            items.extend(self.pods.iter().map(pod));
        }
        for ((of, key), object) in &self.objects {
            if *of == side && key.starts_with(&format!("{}/", target.collection)) {
                items.push(object.clone());
            }
        }
        if target.plural == "deployments" {
            let ready = i32::from(!self.operators_fail) * 2;
            let status =
                json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": ready });
            for item in &mut items {
                json_patch::merge(item, &json!({ "status": status }));
            }
            // Old pods end once the new ones are available.
            self.pods.retain(|pod| !pod.is_old || self.operators_fail);
        }
        let of_kind = json!({ "apiVersion": "v1", "kind": "Any" });
        for item in &mut items {
            let mut whole = of_kind.clone();
            json_patch::merge(&mut whole, item);
            *item = whole;
        }
        json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items })
    }
}

/// A client of one side.
pub(in crate::install) fn client(world: &Arc<Mutex<World>>, side: Side) -> Client {
    let world = world.clone();
    let service = service_fn(move |request: Request<Body>| {
        let world = world.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let (code, answer) = world.lock().unwrap().answer(side, &Request::from_parts(parts, ()), &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    Client::new(service, "default")
}

/// Both connections of an administrator.
pub(in crate::install) fn targets(world: &Arc<Mutex<World>>) -> InstallTargets {
    let mut administrator = Config::new("https://karmada.example:5443/".parse().unwrap());
    administrator.root_cert = Some(Vec::new());
    InstallTargets {
        karmada: client(world, Side::Karmada),
        administrator,
        karmada_url: "https://karmada.example:5443/".to_owned(),
        host: client(world, Side::Host),
        namespace: "mczk-system".to_owned(),
    }
}
