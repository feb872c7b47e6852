//! `mczk register` and `mczk unregister`: install mczk into Karmada's control plane, and remove it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};

use kube::Client;

use super::operation::OperationWord;
use crate::{
    register::{
        Object, Part, Settings,
        agents::Agents,
        apply::{self, Change, Rehearsal},
        interpreter::{CA_PLACEHOLDER, DEFAULT_TIMEOUT, Endpoint, Registration, ca_bundle},
        rbac::{DASHBOARD_ROLE, Identity, ROLE},
    },
    terminal::{columns::aligned, connection::Connection, error::Error, run::block_on},
};
use mczk_api::{contract::naming::namespaced, crd};

/// The command that removes the definitions.
const UNREGISTER_CRDS: &str = "mczk unregister --only crds";

/// Installs mczk into the Karmada control plane
///
/// It applies the CustomResourceDefinitions (crds), the rights of the operator's user (rbac), policies that propagate
/// the definitions to member clusters (propagation), the registration of the webhook (interpreter), and, with
/// --agent-image, the agents of all member clusters (agents).
#[derive(Debug, Args)]
#[command(
    override_usage = "mczk register [OPTIONS] --url <URL> --ca-file <FILE>\n       \
                      mczk register [OPTIONS] --service <SERVICE> --ca-file <FILE>\n       \
                      mczk register [OPTIONS] --only crds,rbac,propagation",
    after_help = "Run it again after every upgrade of mczk. Without a difference it changes nothing."
)]
pub struct Register {
    /// Parts to apply, separated by commas [default: all]
    #[arg(long, env = "MCZK_REGISTER_ONLY", value_enum, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Print the objects as YAML, without a server: for the user mczk-operator, unless a flag names the operator
    #[arg(long, env = "MCZK_REGISTER_DRY_RUN")]
    dry_run: bool,
    #[command(flatten)]
    webhook: WebhookSource,
    #[command(flatten)]
    operator: OperatorFlags,
    /// True if the operator serves the web page (--dashboard-address): it may create TokenReviews and SubjectAccessReviews
    #[arg(long, env = "MCZK_REGISTER_DASHBOARD", help_heading = "Operator")]
    dashboard: bool,
    /// Image of mczk for the agents. Karmada propagates the agents to every member cluster, also to clusters that join
    /// later. Clusters that already have an agent keep theirs [default: none; install them with manifests/agent.yaml or
    /// the chart mczk-agent]
    #[arg(long, env = "MCZK_AGENT_IMAGE", value_name = "IMAGE", help_heading = "Agents",
          value_parser = NonEmptyStringValueParser::new())]
    agent_image: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhook")]
struct WebhookSource {
    /// URL of the webhook, `https://HOST[:PORT][/PATH]`; HOST must be in its certificate. Either this or --service is
    /// required, unless --only leaves out the part `interpreter`
    #[arg(long, env = "MCZK_URL", value_name = "URL", conflicts_with = "service")]
    url: Option<String>,
    /// Service of the webhook, instead of --url: NAMESPACE/NAME[:PORT]. Karmada reads the Service in karmada-apiserver
    /// first, then resolves NAME.NAMESPACE.svc
    #[arg(long, env = "MCZK_SERVICE", value_name = "SERVICE")]
    service: Option<String>,
    /// PEM file of the authority that signed the webhook's certificate (`mczk certs` writes one); required with --url
    /// and with --service, except that --dry-run prints a placeholder
    #[arg(long, env = "MCZK_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Path of the webhook, if --url has none [default: /interpreter]
    #[arg(long = "webhook-path", env = "MCZK_WEBHOOK_PATH", value_name = "PATH")]
    path: Option<String>,
    /// Seconds after which Karmada cancels one request, 1 to 30
    #[arg(long, env = "MCZK_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = DEFAULT_TIMEOUT,
          value_parser = RangedU64ValueParser::<u8>::new().range(1..=30))]
    timeout_seconds: u8,
    /// Operations that Karmada asks the webhook
    #[arg(long, env = "MCZK_OPERATIONS", value_enum, value_name = "OPERATION", value_delimiter = ',',
          default_values_t = OperationWord::ALL, hide_possible_values = true)]
    operations: Vec<OperationWord>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Operator")]
struct OperatorFlags {
    /// User name of the operator in karmada-apiserver; it receives the operator's rights [default: the user or service
    /// account that has them, else mczk-operator]
    #[arg(long, env = "MCZK_OPERATOR_USER", value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    operator_user: Option<String>,
    /// Service account of karmada-apiserver in place of the user: NAMESPACE/NAME [default: none]
    #[arg(long, env = "MCZK_OPERATOR_SERVICE_ACCOUNT", value_name = "ACCOUNT", conflicts_with = "operator_user")]
    operator_service_account: Option<String>,
    /// Namespaces for ensembles, separated by commas. The operator may read and create Secrets in these namespaces and in
    /// those that hold ensembles already, and in no other [default: none]
    #[arg(long, env = "MCZK_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',',
          value_parser = NonEmptyStringValueParser::new())]
    namespaces: Vec<String>,
}

impl Register {
    /// Applies the objects and prints the result of each, or prints the objects.
    ///
    /// # Errors
    /// [`Error::Usage`] for flags that exclude each other; otherwise if Karmada's control plane refuses an object.
    pub fn run(self) -> Result<(), Error> {
        let parts = selected_parts(&self.only);
        let mut interpreter = None;
        if parts.contains(&Part::Interpreter) {
            interpreter = Some(self.webhook.registration(self.dry_run)?);
        }
        if self.only.contains(&Part::Agents) && self.agent_image.is_none() {
            return Err(Error::Usage(
                "--only agents needs --agent-image: name an image of mczk that member clusters can pull".to_owned(),
            ));
        }
        let named = self.operator.identity()?;
        let mut settings = Settings {
            operator: named.clone().unwrap_or_else(|| Identity::User(ROLE.to_owned())),
            namespaces: self.operator.namespaces.iter().cloned().collect(),
            dashboard: self.dashboard,
            interpreter,
            agents: self.agent_image.map(Agents::of_image),
        };
        if self.dry_run {
            return print(&parts, &settings);
        }
        block_on(async {
            let (client, url) = self.connection.client().await?;
            apply::ensure_karmada(&client, &url).await.map_err(failed)?;
            settings.namespaces.extend(apply::namespaces_of_ensembles(&client).await.map_err(failed)?);
            // `mczk install` gives the rights to a service account. Another identity would take them away from it.
            if named.is_none()
                && parts.contains(&Part::Rbac)
                && let Some(registered) = apply::registered_identity(&client).await.map_err(failed)?
            {
                settings.operator = registered;
            }
            write(&client, &parts, &settings).await
        })
    }
}

/// Rehearses all writes, then does them and prints the result of each.
async fn write(client: &Client, parts: &[Part], settings: &Settings) -> Result<(), Error> {
    let mut rehearsal = Rehearsal::default();
    for part in parts {
        for object in part.objects(settings)? {
            rehearsal.apply(client, &object).await?;
        }
    }
    let mut table = ResultTable::default();
    for part in parts {
        for object in part.objects(settings)? {
            let change = apply::apply(client, &object).await.map_err(|error| table.failed(error))?;
            if *part == Part::Crds {
                apply::served(client, &object).await.map_err(|error| table.failed(error))?;
            }
            table.add(&object, &change);
        }
    }
    table.print()
}

/// Removes from the Karmada control plane what `mczk register` installed
///
/// It removes the webhook, the policies and the rights. Member clusters keep running, agents included. The definitions
/// stay unless --only crds removes them.
#[derive(Debug, Args)]
pub struct Unregister {
    /// Parts to remove, separated by commas. The part `crds` removes the definitions from the control plane. It is refused
    /// while an ensemble exists; member clusters keep their definitions [default: rbac,propagation,interpreter,agents]
    #[arg(long, env = "MCZK_UNREGISTER_ONLY", value_enum, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Remove although ensembles exist: their servers keep running, but changes have no effect any more. The part
    /// `crds` then stays
    #[arg(long, env = "MCZK_UNREGISTER_FORCE")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Unregister {
    /// Removes the objects and prints the result of each.
    ///
    /// # Errors
    /// If ensembles exist and `--force` is absent, or the control plane refuses a removal.
    pub fn run(self) -> Result<(), Error> {
        let mut parts = selected_parts(&self.only);
        if self.only.is_empty() {
            parts.retain(|part| *part != Part::Crds);
        }
        // Objects are removed by name, so the settings of the webhook and the identity of the operator do not matter.
        let endpoint = Endpoint::Url(String::new());
        let registration =
            Registration { endpoint, ca_bundle: String::new(), timeout_seconds: DEFAULT_TIMEOUT, operations: vec![] };
        let mut settings = Settings {
            operator: Identity::User(ROLE.to_owned()),
            namespaces: BTreeSet::new(),
            dashboard: true,
            interpreter: Some(registration),
            agents: Some(Agents::default()),
        };
        block_on(async {
            let (client, url) = self.connection.client().await?;
            apply::ensure_karmada(&client, &url).await.map_err(failed)?;
            let ensembles = apply::ensembles(&client).await.map_err(failed)?;
            if !ensembles.is_empty() && !self.force {
                return Err(anyhow!(refusal(&parts, &ensembles)).into());
            }
            settings.namespaces = apply::bound_namespaces(&client).await.map_err(failed)?;
            let mut table = ResultTable::default();
            // In reverse order: the registration of the webhook before the rights of the operator.
            for part in parts.iter().rev() {
                for object in part.objects(&settings).map_err(anyhow::Error::from)? {
                    let agents = *part == Part::Agents;
                    // Its deletion would delete everything in it, in every member cluster.
                    if agents && object.resource.kind == "Namespace" {
                        continue;
                    }
                    let change = match *part {
                        Part::Crds if !ensembles.is_empty() => {
                            Change::Left(format!("{}; {}", describe(&ensembles), remedy(&ensembles, UNREGISTER_CRDS)))
                        }
                        _ => apply::remove(&client, &object).await.map_err(|error| table.failed(error))?,
                    };
                    // Agents and the web page are optional.
                    let optional = agents || object.name() == DASHBOARD_ROLE;
                    if !optional || change != Change::Absent || self.only.contains(part) {
                        table.add(&object, &change);
                    }
                }
            }
            if !parts.contains(&Part::Crds) {
                for object in Part::Crds.objects(&settings).map_err(anyhow::Error::from)? {
                    table.add(&object, &Change::Left("removed only by --only crds".to_owned()));
                }
            }
            table.print()
        })
    }
}

/// The named parts, in the order in which they are applied.
fn selected_parts(only: &[Part]) -> Vec<Part> {
    Part::ALL.into_iter().filter(|part| only.is_empty() || only.contains(part)).collect()
}

fn failed(error: apply::Error) -> Error {
    Error::Failed(error.into())
}

/// Names some of the existing ensembles, not all of perhaps a thousand.
fn describe(ensembles: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = ensembles.iter().take(SHOWN).map(String::as_str).collect();
    let rest = match ensembles.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the control plane holds {}{rest}", shown.join(", "))
}

/// Why `unregister` is refused while ensembles exist, and what to do.
fn refusal(parts: &[Part], ensembles: &[String]) -> String {
    let existing = describe(ensembles);
    if parts == [Part::Crds] {
        let remedy = remedy(ensembles, UNREGISTER_CRDS);
        return format!("{existing}, and the deletion of a definition deletes its objects: {remedy}");
    }
    let remedy = remedy(ensembles, "mczk unregister");
    format!(
        "{existing}: without the webhook Karmada cannot divide replicas, and without rights the operator cannot \
         decommission an ensemble: {remedy}, or add --force to leave them as they are"
    )
}

/// How to remove ensembles first. Templates are deleted with the MultiClusterZooKeeper that owns them, unless that is
/// gone.
fn remedy(ensembles: &[String], command: &str) -> String {
    let made_for = ensembles.iter().any(|name| name.starts_with("MultiClusterZooKeeper "));
    let resource = if made_for { "mczk" } else { "zookeepers.mczk.io" };
    format!(
        "if their data has no use any more, delete them first, while the operator runs (kubectl delete {resource} NAME \
         --namespace NAMESPACE), which also deletes volumes with reclaim Delete, then run `{command}`"
    )
}

fn print(parts: &[Part], settings: &Settings) -> Result<(), Error> {
    let mut text = String::new();
    if settings.interpreter.as_ref().is_some_and(|registration| registration.ca_bundle == CA_PLACEHOLDER) {
        text.push_str("# FILL IN caBundle before you apply this: base64 -w 0 < ca.crt\n");
    }
    for part in parts {
        for object in part.objects(settings).map_err(anyhow::Error::from)? {
            text.push_str(&crd::document(&object.body)?);
        }
    }
    Ok(io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?)
}

impl WebhookSource {
    fn registration(&self, dry_run: bool) -> Result<Registration, Error> {
        let path = self.path.as_deref();
        let endpoint = match (&self.url, &self.service) {
            (Some(url), _) => Endpoint::url(url, path).map_err(|error| Error::Usage(format!("--url: {error}")))?,
            (None, Some(service)) => {
                Endpoint::service(service, path).map_err(|error| Error::Usage(format!("--service: {error}")))?
            }
            (None, None) => {
                return Err(Error::Usage(
                    "either --url or --service is required, the address of the webhook: name one, or leave out the webhook with \
                     --only crds,rbac,propagation"
                        .to_owned(),
                ));
            }
        };
        let ca_bundle = match &self.ca_file {
            Some(file) => {
                let usage =
                    |error: &dyn std::fmt::Display| Error::Usage(format!("--ca-file {}: {error}", file.display()));
                ca_bundle(&fs::read(file).map_err(|error| usage(&error))?).map_err(|error| usage(&error))?
            }
            None if dry_run => CA_PLACEHOLDER.to_owned(),
            None => {
                return Err(Error::Usage(
                    "--ca-file is missing, which --url and --service need: name the certificate of the authority that \
                     signed the webhook's, so that Karmada trusts it"
                        .to_owned(),
                ));
            }
        };
        let mut operations: Vec<_> = self.operations.iter().map(|word| word.0).collect();
        operations.sort_unstable();
        operations.dedup();
        Ok(Registration { endpoint, ca_bundle, timeout_seconds: self.timeout_seconds, operations })
    }
}

impl OperatorFlags {
    /// The identity that a flag names.
    fn identity(&self) -> Result<Option<Identity>, Error> {
        let Some(account) = &self.operator_service_account else {
            return Ok(self.operator_user.clone().map(Identity::User));
        };
        let (namespace, name) = namespaced(account)
            .map_err(|_| Error::Usage(format!("--operator-service-account: {account:?} is not NAMESPACE/NAME")))?;
        Ok(Some(Identity::ServiceAccount { namespace, name }))
    }
}

/// Results for all objects.
#[derive(Default)]
struct ResultTable {
    rows: Vec<[String; 3]>,
}

impl ResultTable {
    fn add(&mut self, object: &Object, change: &Change) {
        self.rows.push([object.resource.kind.clone(), object.name(), change.to_string()]);
    }

    /// Prints the results before a failure.
    fn failed(&self, error: apply::Error) -> Error {
        // The error is more important than a closed pipe.
        let _ = self.print();
        failed(error)
    }

    fn print(&self) -> Result<(), Error> {
        Ok(io::stdout().write_all(aligned(&self.rows).as_bytes()).context("cannot write to standard output")?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clap::Parser;
    use rstest::rstest;

    use super::*;
    use crate::install::tests::world::{Side, World, client};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        register: Register,
    }

    fn refused(arguments: &[&str]) -> String {
        let line = match Line::try_parse_from(["register"].iter().chain(arguments)) {
            Ok(line) => line,
            Err(error) => return error.to_string(),
        };
        match line.register.run() {
            Err(Error::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case(&[], "either --url or --service is required")]
    #[case(&["--ca-file", "ca.crt"], "either --url or --service is required")]
    #[case(&["--only", "interpreter", "--dry-run"], "either --url or --service is required")]
    #[case(&["--url", "https://h", "--service", "a/b"], "'--url <URL>' cannot be used with '--service <SERVICE>'")]
    #[case(&["--url", "http://h"], "--url: \"http://h\" is not https://")]
    #[case(&["--service", "mczk"], "--service: \"mczk\" is not NAMESPACE/NAME")]
    #[case(&["--url", "https://h"], "--ca-file is missing")]
    #[case(&["--service", "a/b"], "--ca-file is missing")]
    #[case(&["--url", "https://h", "--ca-file", "/nonexistent"], "--ca-file /nonexistent: No such file")]
    #[case(&["--url", "https://h", "--timeout-seconds", "31"], "31 is not in 1..=30")]
    #[case(&["--url", "https://h", "--timeout-seconds", "0"], "0 is not in 1..=30")]
    #[case(&["--url", "https://h", "--operations", "Retain"], "invalid value 'Retain'")]
    #[case(&["--only", "rbac", "--operator-user", ""], "a value is required for '--operator-user <USER>'")]
    #[case(&["--only", "everything"], "invalid value 'everything'")]
    #[case(&["--only", "rbac", "--operator-service-account", "x"], "is not NAMESPACE/NAME")]
    #[case(&["--only", "rbac", "--kubeconfig", "/nonexistent"], "cannot use the kubeconfig /nonexistent")]
    fn a_wrong_flag_is_reported_before_any_request(#[case] arguments: &[&str], #[case] expected: &str) {
        let text = refused(arguments);
        assert!(text.contains(expected), "{text}");
    }

    #[tokio::test]
    async fn a_namespace_that_does_not_exist_is_named_before_anything_is_written() {
        let world = Arc::new(Mutex::new(World::new()));
        let mut settings = Settings {
            operator: Identity::User(ROLE.to_owned()),
            namespaces: ["zookeeper", "absent"].map(str::to_owned).into(),
            dashboard: true,
            interpreter: None,
            agents: Some(Agents::of_image("mczk".to_owned())),
        };
        let karmada = client(&world, Side::Karmada);
        let text = write(&karmada, &Part::ALL, &settings).await.unwrap_err().to_string();
        assert!(
            text.contains("RoleBinding absent/mczk-operator: the namespace absent does not exist: create it"),
            "{text}"
        );
        assert_eq!(world.lock().unwrap().writes, 0);
        settings.namespaces.remove("absent");
        write(&karmada, &Part::ALL, &settings).await.unwrap();
        assert!(world.lock().unwrap().writes > 10);
    }

    #[test]
    fn a_refusal_names_the_next_command() {
        let ensembles = ["MultiClusterZooKeeper a/1".to_owned(), "ZooKeeper a/1".to_owned()];
        let text = refusal(&[Part::Crds], &ensembles);
        assert!(text.contains("(kubectl delete mczk NAME --namespace NAMESPACE)"), "{text}");
        assert!(text.ends_with("then run `mczk unregister --only crds`") && !text.contains("--force"), "{text}");
        let text = refusal(&[Part::Rbac], &ensembles[1..]);
        assert!(text.contains("(kubectl delete zookeepers.mczk.io NAME --namespace NAMESPACE)"), "{text}");
        assert!(text.contains("then run `mczk unregister`") && text.contains("--force"), "{text}");
    }

    #[test]
    fn parts_keep_their_order() {
        assert_eq!(selected_parts(&[Part::Interpreter, Part::Crds]), [Part::Crds, Part::Interpreter]);
        assert_eq!(selected_parts(&[]), Part::ALL);
    }

    #[test]
    fn a_message_names_at_most_three_ensembles() {
        let ensembles: Vec<_> = (1..=5).map(|i| format!("ZooKeeper a/{i}")).collect();
        assert_eq!(
            describe(&ensembles),
            "the control plane holds ZooKeeper a/1, ZooKeeper a/2, ZooKeeper a/3 and 2 more"
        );
        assert_eq!(describe(&ensembles[..1]), "the control plane holds ZooKeeper a/1");
    }
}
