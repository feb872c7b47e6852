//! The memory of an operator whose web page many users have open.

use std::{net::SocketAddrV4, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{AsyncReadExt as _, future::try_join_all};
use k8s_openapi::{
    Resource,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
};
use kube::{Api, Client, Config, api::PostParams, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    ground::{Ground, accept_existing},
    operator::Operator,
};

/// Pages of the same user, each with a connection of its own.
const PAGES: usize = 10;
/// Longest time until a page shows ensembles.
const SHOWN: Duration = Duration::from_secs(60);
/// Namespace of the user.
const NAMESPACE: &str = "scale-0";
/// Name of the user and of its rights.
const VIEWER: &str = "viewer";

/// Most resident memory in MiB of an operator beside settled ensembles, with open pages of all of them.
///
/// # Errors
/// If a page does not open, or shows no ensemble.
pub(crate) async fn memory(ground: &Ground, ensembles: usize, reconciled: Duration, window: Duration) -> Result<f64> {
    ground.federation.grant_page().await?;
    let token = token(&ground.client()).await?;
    let (operator, address) = Operator::start_with_page(&ground.federation).await?;
    operator.reconciled(ensembles, reconciled).await?;
    let authority = std::fs::read(ground.federation.authority())?;
    let read = try_join_all((0..PAGES).map(|_| read(address, &authority, &token, window))).await?;
    ground.report(&format!("measured: {PAGES} open pages read {} KiB", read.iter().sum::<usize>() >> 10));
    let most = operator.memory("VmHWM:")?;
    operator.kill().await?;
    Ok(most)
}

/// Follows a page for this time. Returns the bytes.
async fn read(address: SocketAddrV4, authority: &[u8], token: &str, window: Duration) -> Result<usize> {
    let mut config = Config::new(format!("https://{address}").parse()?);
    config.root_cert = Some(vec![CertificateDer::from_pem_slice(authority)?.to_vec()]);
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    let request = hyper::Request::get("/api/v1/events").body(Vec::new())?;
    let events = timeout(SHOWN, Client::try_from(config)?.request_stream(request)).await.context("no answer")??;
    let (mut events, mut all, mut part) = (std::pin::pin!(events), 0, vec![0; 64 << 10]);
    let until = Instant::now() + window;
    while let Ok(read) = timeout_at(until, events.read(&mut part)).await {
        let read = read?;
        ensure!(read > 0, "the page ended after {all} bytes");
        all += read;
    }
    ensure!(all > 4096, "a page showed only {all} bytes");
    Ok(all)
}

/// A token of a user who may see all ensembles.
async fn token(client: &Client) -> Result<String> {
    let rule = json!({ "apiGroups": ["mczk.io"], "resources": ["multiclusterzookeepers"], "verbs": ["get", "list"] });
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": VIEWER });
    let subject = json!({ "kind": "ServiceAccount", "name": VIEWER, "namespace": NAMESPACE });
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    create(&accounts, json!({})).await?;
    create::<ClusterRole>(&Api::all(client.clone()), json!({ "rules": [rule] })).await?;
    create::<ClusterRoleBinding>(&Api::all(client.clone()), json!({ "roleRef": reference, "subjects": [subject] }))
        .await?;
    let spec = TokenRequestSpec { expiration_seconds: Some(7200), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let request = accounts.create_token_request(VIEWER, &PostParams::default(), &request).await?;
    Ok(request.status.context("no token")?.token)
}

/// Creates an object with the name of the user, unless it exists.
async fn create<T>(api: &Api<T>, mut object: Value) -> Result<()>
where
    T: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), json!(T::API_VERSION));
        fields.insert("kind".into(), json!(T::KIND));
        fields.insert("metadata".into(), json!({ "name": VIEWER }));
    }
    accept_existing(api.create(&PostParams::default(), &serde_json::from_value(object)?).await).map(drop)
}
