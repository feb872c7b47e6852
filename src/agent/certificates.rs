//! Reads the Secrets with certificates: those that travelled here, and the agent's own, which pods mount.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, ResourceExt, api::DynamicObject};

use crate::{
    agent::{
        Context, During, Error, api,
        decide::client_tls::{self, SecretState, Taken},
        render::{Kind, Material, client_copy, copied_client, quorum_secret},
    },
    api::{ZooKeeper, karmada::CONFLICT_RESOLUTION, zookeeper::Ensemble},
    contract::labels::{INCARNATION_LABEL, KARMADA_MANAGED_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL},
};

/// Certificates of the quorum.
pub(super) struct Quorum {
    /// Those that the list names, if all of them are here.
    pub(super) newest: Option<Material>,
    /// Those that this life's pods mount.
    pub(super) mounted: Option<Material>,
}

impl Quorum {
    /// Those by which servers are spoken to. Certificates of a new list may be on their way: until then those that servers have
    /// serve to ask them.
    pub(super) fn spoken_with(&self) -> Option<&Material> {
        self.newest.as_ref().or(self.mounted.as_ref())
    }
}

/// Our own Secrets of the lives that anything is left of.
pub(super) async fn own(
    context: &Context,
    namespace: &str,
    name: &str,
    list: Option<&Ensemble>,
    live: &mut BTreeMap<(Kind, String), DynamicObject>,
) -> Result<(), Error> {
    let mut lives: BTreeSet<String> =
        live.values().filter_map(|o| o.labels().get(INCARNATION_LABEL).cloned()).collect();
    lives.extend(list.into_iter().flat_map(|list| list.incarnation.iter().chain(&list.former_incarnations)).cloned());
    for secret in lives.iter().flat_map(|life| [quorum_secret(name, life), client_copy(name, life)]) {
        let found = api(context, namespace, Kind::Secret).get_opt(&secret).await;
        if let Some(object) = found.during(|| format!("reading Secret {secret}"))?
            && object.labels().get(MANAGED_BY_LABEL).map(String::as_str) == Some(MANAGED_BY_AGENT)
        {
            live.insert((Kind::Secret, secret), object);
        }
    }
    Ok(())
}

/// The quorum's certificates.
pub(super) async fn quorum(
    context: &Context,
    namespace: &str,
    name: &str,
    list: Option<&Ensemble>,
    live: &BTreeMap<(Kind, String), DynamicObject>,
) -> Result<Quorum, Error> {
    let Some(list) = list else { return Ok(Quorum { newest: None, mounted: None }) };
    let mounted = merged(live, &quorum_secret(name, list.incarnation.as_deref().unwrap_or_default()));
    Ok(Quorum { newest: material(context, namespace, list).await?, mounted })
}

/// The certificates that clients are to see, if pods mount a copy of them.
pub(super) async fn client(
    context: &Context,
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    live: &BTreeMap<(Kind, String), DynamicObject>,
) -> Result<Taken, Error> {
    let (Some(list), Some(client)) = (list, copied_client(&object.spec)) else { return Ok(Taken::default()) };
    let kept = merged(live, &client_copy(&object.name_any(), list.incarnation.as_deref().unwrap_or_default()));
    let name = &client.secret_name;
    if !client_tls::is_name(name) {
        return Ok(client_tls::take(name, SecretState::Misnamed, kept));
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let secret = api.get_opt(name).await.during(|| format!("reading Secret {name}"))?;
    Ok(client_tls::take(name, travelled(secret), kept))
}

fn travelled(secret: Option<Secret>) -> SecretState {
    let Some(secret) = secret else { return SecretState::Missing };
    // What Karmada brought keeps the annotation when it lets go. One that was made here, by a person or by what issues
    // certificates in this cluster, is as good.
    let let_go =
        secret.annotations().contains_key(CONFLICT_RESOLUTION) && !secret.labels().contains_key(KARMADA_MANAGED_LABEL);
    let data = secret.data.unwrap_or_default();
    match whole(&data) {
        Ok(material) if let_go => SecretState::Released(material),
        Ok(material) => SecretState::Whole(material),
        Err(key) => SecretState::Partial(key),
    }
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
}

/// All that a Secret with certificates holds, or the key that is not there as text.
fn whole(data: &BTreeMap<String, ByteString>) -> Result<Material, &'static str> {
    let text = |key: &'static str| text(data, key).ok_or(key);
    Ok(Material { certificate: text("tls.crt")?, key: text("tls.key")?, authorities: text("ca.crt")? })
}

/// The quorum's certificates: the identity, and every authority that is trusted. All of them, or none.
async fn material(context: &Context, namespace: &str, list: &Ensemble) -> Result<Option<Material>, Error> {
    let Some(tls) = &list.tls else { return Ok(None) };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let read = async |name: &str, key: &str| -> Result<Option<String>, Error> {
        let secret = api.get_opt(name).await.during(|| format!("reading Secret {name}"))?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        Ok(text(&data, key))
    };
    let (Some(certificate), Some(key)) = (read(&tls.identity, "tls.crt").await?, read(&tls.identity, "tls.key").await?)
    else {
        return Ok(None);
    };
    let mut authorities = String::new();
    for name in &tls.trust {
        let Some(authority) = read(name, "ca.crt").await? else { return Ok(None) };
        authorities.push_str(authority.trim_end());
        authorities.push('\n');
    }
    Ok((!authorities.is_empty()).then_some(Material { certificate, key, authorities }))
}

/// The certificates of a Secret that this life's pods mount.
fn merged(live: &BTreeMap<(Kind, String), DynamicObject>, secret: &str) -> Option<Material> {
    let secret = live.get(&(Kind::Secret, secret.to_owned()))?.clone();
    let data = serde_json::from_value::<Secret>(serde_json::to_value(secret).ok()?).ok()?.data?;
    whole(&data).ok()
}
