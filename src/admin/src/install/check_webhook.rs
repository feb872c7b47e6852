//! `mczk check-webhook`: calls the interpreter webhook as Karmada does. `helm test` runs it.

use std::time::Duration;

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, builder::RangedU64ValueParser};
use http::{Request, Uri, header::CONTENT_TYPE};
use kube::{Api, Client, Config, api::DynamicObject};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use crate::{
    register::{NAME, apply::cause, interpreter},
    terminal::{connection::Connection, error::Error, output::print, run::block_on},
};
use mczk_api::karmada::interpreter::{API_VERSION, ResourceInterpreterWebhook, WebhookClientConfig};
use mczk_rules::interpreter::wire::{KIND, Operation};
use mczk_runtime::failure::is_forbidden;

/// Id of the question, which the answer repeats.
const UID: &str = "mczk-check-webhook";

/// Calls the webhook as Karmada does: at the address of its registration, trusting only the authority in it
///
/// It reads the registration and nothing else of karmada-apiserver, so the credential of the operator suffices. The webhook
/// answers a question that changes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if the webhook answers, 1 if it does not or has an untrusted certificate, 2 for a wrong \
                  command line."
)]
pub struct CheckWebhook {
    /// Seconds to wait for the answer
    #[arg(long, env = "MCZK_CHECK_WEBHOOK_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=60))]
    timeout_seconds: u64,
    #[command(flatten)]
    connection: Connection,
}

impl CheckWebhook {
    /// Calls the webhook, and prints its address.
    ///
    /// # Errors
    /// If there is no registration, or the webhook does not answer as it must.
    pub fn run(self) -> Result<(), Error> {
        block_on(async {
            let (karmada, _) = self.connection.client().await?;
            let registered = registered(&karmada).await?;
            let target = WebhookTarget::of(&registered)?;
            target.ask(Duration::from_secs(self.timeout_seconds)).await?;
            print(&format!("The webhook {}{} answers with a trusted certificate\n", target.server, target.path))
        })
    }
}

/// How the registration calls the webhook.
async fn registered(karmada: &Client) -> anyhow::Result<WebhookClientConfig> {
    let api: Api<DynamicObject> = Api::all_with(karmada.clone(), &interpreter::resource());
    let found = api.get_opt(NAME).await.map_err(|error| {
        let remedy = if is_forbidden(&error) {
            "mczk register --only rbac, or mczk install, grants the right to it"
        } else {
            "check --kubeconfig and --context, and that karmada-apiserver runs"
        };
        anyhow::Error::from(error).context(format!("cannot read the registration {NAME}: {remedy}"))
    })?;
    let found = found.with_context(|| {
        format!("there is no registration {NAME}: run mczk install, or mczk register --only interpreter")
    })?;
    let webhook = found.data.pointer("/webhooks/0").cloned().unwrap_or_default();
    let webhook: ResourceInterpreterWebhook =
        serde_json::from_value(webhook).with_context(|| format!("the registration {NAME} is not complete"))?;
    Ok(webhook.client_config)
}

/// The webhook, and who signs its certificate.
#[derive(Debug, PartialEq, Eq)]
struct WebhookTarget {
    /// Scheme, host and port.
    server: Uri,
    path: String,
    /// Certificates of the authorities, in DER.
    authorities: Vec<Vec<u8>>,
}

impl WebhookTarget {
    fn of(config: &WebhookClientConfig) -> anyhow::Result<Self> {
        let url = match (&config.service, &config.url) {
            (Some(service), _) => {
                format!("https://{}.{}.svc:{}{}", service.name, service.namespace, service.port, service.path)
            }
            (None, Some(url)) => url.clone(),
            (None, None) => return Err(anyhow!("the registration {NAME} has no address: run mczk install")),
        };
        let uri: Uri = url.parse().with_context(|| format!("the registration has the URL {url}"))?;
        let authority = uri.authority().with_context(|| format!("the URL {url} has no host"))?;
        let server = format!("https://{authority}/").parse::<Uri>().context("the URL has no host")?;
        let pem = STANDARD.decode(&config.ca_bundle).context("caBundle of the registration is not base64")?;
        let authorities = CertificateDer::pem_slice_iter(&pem).map(|read| read.map(|der| der.to_vec()));
        let authorities =
            authorities.collect::<Result<Vec<_>, _>>().context("caBundle of the registration is no PEM")?;
        if authorities.is_empty() {
            return Err(anyhow!("caBundle of the registration holds no certificate: run mczk install"));
        }
        Ok(Self { server, path: uri.path().to_owned(), authorities })
    }

    async fn ask(&self, limit: Duration) -> anyhow::Result<()> {
        let mut config = Config::new(self.server.clone());
        config.root_cert = Some(self.authorities.clone());
        config.default_retry = false;
        (config.connect_timeout, config.read_timeout) = (Some(limit), Some(limit));
        let client = Client::try_from(config).context("cannot trust caBundle of the registration")?;
        let request = Request::post(&self.path).header(CONTENT_TYPE, "application/json");
        let request = request.body(serde_json::to_vec(&question())?)?;
        let asked = tokio::time::timeout(limit, client.request_text(request)).await;
        let asked = asked.map_err(|_| anyhow!("no answer of the webhook {} in {} s", self.server, limit.as_secs()))?;
        let text = asked.map_err(|error| anyhow!("the webhook {}: {}", self.server, cause(&error)))?;
        check(&serde_json::from_str(&text).context("the answer is no JSON")?)
    }
}

/// The dependencies of an object without any.
fn question() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "request": {
            "uid": UID,
            "operation": Operation::InterpretDependency.name(),
            "kind": { "group": mczk_api::GROUP, "version": mczk_api::VERSION, "kind": "ZooKeeper" },
            "name": "check",
            "namespace": "default",
            "object": { "metadata": { "name": "check", "namespace": "default" }, "spec": {} },
        },
    })
}

fn check(answer: &Value) -> anyhow::Result<()> {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/response/uid") != UID {
        return Err(anyhow!("another server answers at the address of the webhook: it does not repeat the id"));
    }
    if answer.pointer("/response/successful") != Some(&Value::Bool(true)) {
        return Err(anyhow!("the webhook refuses the question: {}", text("/response/status/message")));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::install::webhook_authority::Authority;
    use mczk_api::karmada::interpreter::ServiceReference;

    fn config(url: Option<&str>) -> WebhookClientConfig {
        let pem = Authority::make(Timestamp::now(), 10).unwrap().pem;
        let service = ServiceReference {
            namespace: "sys".to_owned(),
            name: "mczk".to_owned(),
            path: "/interpreter".to_owned(),
            port: 443,
        };
        let (url, service) = (url.map(str::to_owned), url.is_none().then_some(service));
        WebhookClientConfig { url, service, ca_bundle: STANDARD.encode(pem) }
    }

    #[rstest]
    #[case::service(None, "https://mczk.sys.svc:443/", "/interpreter")]
    #[case::url(Some("https://[::1]:8443/x"), "https://[::1]:8443/", "/x")]
    fn the_address_is_that_of_the_registration(#[case] url: Option<&str>, #[case] server: &str, #[case] path: &str) {
        let target = WebhookTarget::of(&config(url)).unwrap();
        assert_eq!((target.server.to_string().as_str(), target.path.as_str()), (server, path));
        assert_eq!(target.authorities.len(), 1);
    }

    #[test]
    fn a_registration_without_an_authority_or_an_address() {
        let error = WebhookTarget::of(&WebhookClientConfig { ca_bundle: String::new(), ..config(None) }).unwrap_err();
        assert!(error.to_string().contains("holds no certificate"), "{error}");
        let error = WebhookTarget::of(&WebhookClientConfig { service: None, ..config(None) }).unwrap_err();
        assert!(error.to_string().contains("has no address"), "{error}");
    }

    #[rstest]
    #[case(json!({ "response": { "uid": UID, "successful": true } }), None)]
    #[case(json!({ "response": { "uid": UID, "successful": false, "status": { "message": "no" } } }), Some("refuses"))]
    #[case(json!({ "response": { "uid": "1", "successful": true } }), Some("another server"))]
    #[case(json!({}), Some("another server"))]
    fn an_answer(#[case] answer: Value, #[case] expected: Option<&str>) {
        let error = check(&answer).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()));
    }

    #[test]
    fn the_webhook_answers_the_question() {
        let answered =
            mczk_rules::interpreter::handler::answer(question().to_string().as_bytes(), Timestamp::now()).unwrap();
        check(&serde_json::to_value(answered.reply).unwrap()).unwrap();
    }
}
