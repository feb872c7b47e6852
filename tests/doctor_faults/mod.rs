//! Faults for `mczk doctor`: each is made with objects of a real Karmada, found by the real program, and undone.

mod table;
mod webhook;

use std::time::Instant;

use kube::{
    Client, ResourceExt,
    api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::patience::wait_for;

/// Changes the fields of an object.
type Edit = Box<dyn Fn(&mut Value)>;

/// What happens to an object.
enum What {
    /// It is created, with its status if it has one.
    Create,
    /// It is removed.
    Delete,
    /// Its fields change.
    Edit(Edit),
}

/// One change of one object in karmada-apiserver, or in a member cluster.
struct Change {
    object: DynamicObject,
    what: What,
    in_member: bool,
}

/// A fault, and what the program must say about it.
struct Fault {
    changes: Vec<Change>,
    /// Further flags of the program.
    flags: Vec<String>,
    findings: Vec<Expected>,
}

/// One finding.
struct Expected {
    area: &'static str,
    severity: &'static str,
    message: &'static str,
    remedy: &'static str,
}

/// A finding of the program: area, severity, message and remedy.
type Found = [String; 4];

impl Change {
    fn of(object: Value, what: What) -> Self {
        Self { object: serde_json::from_value(object).unwrap(), what, in_member: false }
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let types = self.object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", types.api_version.as_str()));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        match self.object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// Makes the change. Returns the object as it was.
    async fn make(&self, client: &Client) -> Option<DynamicObject> {
        let (api, name) = (self.api(client), self.object.name_any());
        let former = api.get_opt(&name).await.unwrap();
        match &self.what {
            What::Create => {
                api.create(&PostParams::default(), &self.object).await.unwrap();
                if let Some(status) = self.object.data.get("status") {
                    let patch = Patch::Merge(json!({ "status": status }));
                    api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
                }
            }
            What::Delete => drop(api.delete(&name, &DeleteParams::default()).await.unwrap()),
            What::Edit(edit) => {
                let mut data = former.clone().unwrap().data;
                edit(&mut data);
                replace(&api, &name, data).await;
            }
        }
        former
    }

    /// Undoes the change.
    async fn undo(&self, client: &Client, former: Option<DynamicObject>) {
        let (api, name) = (self.api(client), self.object.name_any());
        match (&self.what, former) {
            (What::Edit(_), Some(former)) => replace(&api, &name, former.data).await,
            (What::Delete, Some(mut former)) => {
                former.metadata.managed_fields = None;
                former.metadata.resource_version = None;
                former.metadata.uid = None;
                api.create(&PostParams::default(), &former).await.unwrap();
            }
            _ => {
                api.delete(&name, &DeleteParams::default()).await.unwrap();
                // No agent runs that would release a cluster.
                let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let released = api.patch(&name, &PatchParams::default(), &release).await;
                drop(released);
                wait_for(&format!("{name} goes"), async || api.get_opt(&name).await.unwrap().is_none()).await;
            }
        }
    }
}

/// Gives an object these fields. Controllers of Karmada change it too.
async fn replace(api: &Api<DynamicObject>, name: &str, data: Value) {
    wait_for(&format!("{name} changes"), async || {
        let mut object = api.get(name).await.unwrap();
        object.data = data.clone();
        match api.replace(name, &PostParams::default(), &object).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 409 => false,
            Err(error) => panic!("{name}: {error}"),
        }
    })
    .await;
}

/// What the program finds.
fn findings(run: &impl Fn(&[&str]) -> Value, flags: &[String]) -> Vec<Found> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let report = run(&[&["doctor", "-o", "json"][..], &flags].concat());
    let mut found = Vec::new();
    for area in report["areas"].as_array().unwrap() {
        for finding in area["findings"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            found.push([
                text(&area["area"]),
                text(&finding["severity"]),
                text(&finding["message"]),
                text(&finding["remedy"]),
            ]);
        }
    }
    found
}

fn is_found(found: &[Found], expected: &Expected) -> bool {
    found.iter().any(|[area, severity, message, remedy]| {
        (area.as_str(), severity.as_str()) == (expected.area, expected.severity)
            && message.contains(expected.message)
            && remedy.contains(expected.remedy)
    })
}

/// Makes each fault, asks the program, and undoes the fault. `run` runs the program and returns its report; `host` is
/// the kubeconfig of a cluster without an operator. `member` is a member cluster.
pub async fn each_is_named(client: &Client, member: &Client, run: impl Fn(&[&str]) -> Value, host: &str) {
    let begun = Instant::now();
    let place = |change: &Change| if change.in_member { member } else { client };
    let healthy = findings(&run, &[]);
    for (name, fault) in table::faults(webhook::serve(), host) {
        let already: Vec<_> = fault.findings.iter().filter(|expected| is_found(&healthy, expected)).collect();
        assert!(already.is_empty(), "{name}: found before the fault: {healthy:#?}");
        let mut former = Vec::new();
        for change in &fault.changes {
            former.push(change.make(place(change)).await);
        }
        let mut last = Vec::new();
        // Decisions about rights follow a change of a role after a moment.
        for _ in 0..3 {
            last = findings(&run, &fault.flags);
            if fault.findings.iter().all(|expected| is_found(&last, expected)) {
                break;
            }
        }
        for expected in &fault.findings {
            assert!(is_found(&last, expected), "{name}: no {}: {}: {last:#?}", expected.area, expected.message);
        }
        for (change, former) in fault.changes.iter().zip(former).rev() {
            change.undo(place(change), former).await;
        }
    }
    // Times of day are not compared: nothing of this is in a finding without a fault.
    wait_for("every fault is undone", async || findings(&run, &[]) == healthy).await;
    println!("the faults took {:.1} s", begun.elapsed().as_secs_f64());
}
