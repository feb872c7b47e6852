//! `mczk uninstall`: removes everything but running servers, and the objects by which a later installation adopts them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use serde_json::json;

use super::{
    flags::{HostFlags, InstallTargets},
    karmada,
    steps::InstallSteps,
    uninstall_check::{Found, refusal},
    wait,
};
use crate::{
    register::{
        Object, Part, Settings,
        agents::{self, Agents},
        apply::{self, Change},
        credential, host,
        interpreter::{DEFAULT_TIMEOUT, Endpoint, Registration},
        issued,
        ownership::is_of_another,
        pods::PodSettings,
    },
    terminal::{
        connection::Connection,
        error::Error,
        output::{Exit, print},
        run::block_on,
    },
};
use mczk_reading::read_only;

/// Time in which Karmada must release the agents in the member clusters that it reaches.
const RELEASE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(1);

/// Removes mczk: the operator, its rights and Secrets, the webhook, and the agents of all member clusters
///
/// Servers keep running. Their ensembles stay declared, and a later `mczk install` adopts them without a restart. Until then
/// no program changes, moves or repairs them. The definitions are removed only if no ensemble exists. Secrets are removed
/// only if `mczk install` made them.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 for success, 1 for a failure, 2 for a wrong command line, 3 if --dry-run shows a \
                        difference."
)]
pub struct Uninstall {
    /// Print what would be removed, and remove nothing
    #[arg(long, env = "MCZK_UNINSTALL_DRY_RUN")]
    dry_run: bool,
    /// Remove the rest although the host holds no operator; leave a Deployment and Service there to their own tool
    #[arg(long, env = "MCZK_UNINSTALL_WITHOUT_OPERATOR")]
    without_operator: bool,
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    connection: Connection,
}

impl Uninstall {
    /// Removes everything, and prints every object with what became of it.
    ///
    /// # Errors
    /// [`Error::Usage`] for flags that exclude each other; otherwise if an API server refuses a removal.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let place = InstallTargets::connect(&self.connection, &self.host).await?;
            apply::ensure_karmada(&place.karmada, &place.karmada_url).await?;
            // Certificates first: cert-manager would make their Secrets again.
            let mut made = apply::installed(&place.host, &issued::resource(), &place.namespace).await?;
            made.extend(apply::installed_secrets(&place.host, &place.namespace).await?);
            let control_plane = apply::control_plane(&place.karmada).await?;
            if let Some(other) = made.iter().find(|made| is_of_another(&made.body.metadata, &control_plane)) {
                return Err(place.another_karmada(&other.body.metadata));
            }
            self.check(&place, !made.is_empty()).await?;
            let mut steps = InstallSteps::new(self.dry_run);

            if !self.without_operator {
                steps.begin("Host: the operator")?;
                remove_operator(&place, &mut steps).await?;
            }
            steps.begin("Karmada: the agents of all member clusters")?;
            remove_agents(&place, &mut steps).await?;
            steps.begin("Karmada: the webhook, the rights and the policies")?;
            remove_registration(&place, &mut steps).await?;
            // Last: a run that ended early is recognized by them, and may be repeated.
            steps.begin("Host: the Secrets")?;
            remove_secrets(&place, &made, &mut steps).await?;
            let ensembles = apply::ensembles(&place.karmada).await?;
            if !ensembles.is_empty() {
                let count = ensembles.len();
                print(&format!(
                    "{count} objects of ensembles stay, and their servers run on: mczk install adopts them\n"
                ))?;
            }
            Ok(Exit::waits(self.dry_run && steps.differs()))
        })
    }

    /// Refuses if an operator may run that this command does not remove.
    async fn check(&self, place: &InstallTargets, has_secrets: bool) -> Result<(), Error> {
        let rights = Part::Rbac.objects(&karmada::settings(BTreeSet::new()))?;
        let mut has_rights = false;
        for object in &rights {
            has_rights = has_rights || apply::exists(&place.karmada, object).await?;
        }
        let deployments = wait::deployments(place).await?;
        let found = Found { namespace: &place.namespace, deployments: &deployments, has_secrets, has_rights };
        refusal(&found, self.without_operator).map_or(Ok(()), |why| Err(Error::Usage(why)))
    }
}

async fn remove_operator(place: &InstallTargets, steps: &mut InstallSteps) -> Result<(), Error> {
    let settings = host::HostSettings {
        namespace: place.namespace.clone(),
        replicas: 0,
        member_image: String::new(),
        certificate_secret: String::new(),
        // An installation without the web page has no Service of it, which is no error.
        dashboard: true,
        start: String::new(),
        pods: PodSettings::default(),
    };
    // The Deployment first, so that no operator runs without its rights.
    for object in host::objects(&settings)?.iter().rev() {
        steps.remove(&place.host, object).await?;
    }
    Ok(())
}

/// Removes what `mczk install` made, and names what another client made.
async fn remove_secrets(place: &InstallTargets, made: &[Object], steps: &mut InstallSteps) -> Result<(), Error> {
    for object in made {
        steps.remove(&place.host, object).await?;
    }
    for name in [host::KUBECONFIG_SECRET, host::CERTIFICATE_SECRET, host::AUTHORITY_SECRET] {
        let object = host::secret(&place.namespace, name, "Opaque", [])?;
        if !is_among(made, &object) && apply::exists(&place.host, &object).await? {
            steps.report(&Change::Left("mczk install did not make it".to_owned()), &object)?;
        }
    }
    Ok(())
}

fn is_among(made: &[Object], wanted: &Object) -> bool {
    made.iter().any(|object| object.resource.kind == wanted.resource.kind && object.name() == wanted.name())
}

/// Removes the agents from the member clusters that Karmada reaches: their policy preserves them until it says otherwise.
async fn remove_agents(place: &InstallTargets, steps: &mut InstallSteps) -> Result<(), Error> {
    // Copies of pull Secrets, whatever their names: the flags of the installation are not known here.
    let secrets = apply::installed_secrets(&place.karmada, agents::NAMESPACE).await?;
    let mut objects = agent_objects(secrets)?;
    let Some(policy) = objects.pop() else { return Ok(()) };
    if !steps.is_dry_run() && apply::would_remove(&place.karmada, &policy).await? == Change::Removed {
        release(place, policy.clone(), &objects).await?;
    }
    for object in objects.iter().rev().chain([&policy]) {
        steps.remove(&place.karmada, object).await?;
    }
    Ok(())
}

/// The objects of the agents, and their policy as the last one.
fn agent_objects(secrets: Vec<Object>) -> Result<Vec<Object>, Error> {
    let agents = Agents { secrets, ..Agents::default() };
    let settings = Settings { agents: Some(agents), ..karmada::settings(BTreeSet::new()) };
    let mut objects = Part::Agents.objects(&settings)?;
    // Its deletion would delete everything in it, in every member cluster.
    objects.retain(|object| object.resource.kind != "Namespace");
    Ok(objects)
}

/// Lets Karmada delete what the policy propagates, and waits until it knows.
async fn release(place: &InstallTargets, mut policy: Object, objects: &[Object]) -> Result<(), Error> {
    json_patch::merge(&mut policy.body.data, &json!({ "spec": { "preserveResourcesOnDeletion": false } }));
    apply::apply(&place.karmada, &policy).await?;
    let begin = Instant::now();
    for object in objects {
        let (kind, name) = (&object.resource.kind, object.body.metadata.name.as_deref().unwrap_or_default());
        let namespace = object.body.metadata.namespace.as_deref();
        while !read_only::is_released(&place.karmada, kind, namespace, name).await.map_err(anyhow::Error::from)? {
            if begin.elapsed() > RELEASE {
                return Err(anyhow!(
                    "Karmada does not release {kind} {name} of the agents: check that karmada-controller-manager runs, and \
                     run the command again"
                )
                .into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
    Ok(())
}

async fn remove_registration(place: &InstallTargets, steps: &mut InstallSteps) -> Result<(), Error> {
    let registration = Registration {
        endpoint: Endpoint::Url(String::new()),
        ca_bundle: String::new(),
        timeout_seconds: DEFAULT_TIMEOUT,
        operations: vec![],
    };
    let settings = Settings {
        interpreter: Some(registration),
        dashboard: true,
        ..karmada::settings(apply::bound_namespaces(&place.karmada).await?)
    };
    for part in [Part::Interpreter, Part::Propagation, Part::Rbac, Part::Crds] {
        // A user may have created one since the command began. The deletion of a definition deletes its objects.
        if part == Part::Crds && !apply::ensembles(&place.karmada).await?.is_empty() {
            continue;
        }
        for object in part.objects(&settings)?.iter().rev() {
            steps.remove(&place.karmada, object).await?;
        }
    }
    for object in credential::objects()?.iter().rev().filter(|object| object.resource.kind != "Namespace") {
        steps.remove(&place.karmada, object).await?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_pull_secrets_are_removed_whatever_their_names() {
        let copy = host::secret(agents::NAMESPACE, "registry", "kubernetes.io/dockerconfigjson", []).unwrap();
        let mut objects = agent_objects(vec![copy]).unwrap();
        let policy = objects.pop().unwrap();
        assert_eq!(policy.name(), agents::POLICY);
        assert!(policy.body.data.to_string().contains("\"registry\""), "Karmada releases the copies in the clusters");
        let last = objects.last().unwrap();
        assert_eq!((last.resource.kind.as_str(), last.name()), ("Secret", "mczk-system/registry".to_owned()));
        assert!(objects.iter().all(|object| object.resource.kind != "Namespace"));
    }

    #[test]
    fn a_secret_of_the_user_is_not_among_those_of_install() {
        let secret = |name| host::secret("sys", name, "Opaque", []).unwrap();
        let made = [secret(host::KUBECONFIG_SECRET), issued::named("sys", host::CERTIFICATE_SECRET).unwrap()];
        assert!(is_among(&made, &secret(host::KUBECONFIG_SECRET)));
        assert!(!is_among(&made, &secret(host::CERTIFICATE_SECRET)));
    }
}
