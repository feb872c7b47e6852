//! Reads the Secrets with certificates: those that Karmada propagates, and the agent's own copies, which pods mount.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, ResourceExt};

use crate::{context::AgentContext, observe::objects::LiveObjects};
use mczk_api::{
    ZooKeeper,
    contract::{
        certificate_expiry::invalid,
        labels::{INCARNATION_LABEL, KARMADA_MANAGED_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL},
    },
    karmada::CONFLICT_RESOLUTION,
    tls::EnsembleTls,
    zookeeper::Ensemble,
};
use mczk_rules::agent::{
    decide::{
        client_certificates::{self, AcceptedCertificates, SecretState},
        lifetimes::{Lifetime, Lifetimes},
    },
    render::{
        material::Material,
        object::Kind,
        secret::{client_copy, quorum_secret},
    },
};
use mczk_runtime::{
    client_certificates::{check, check_subjects},
    failure::{During, Error},
    pki,
};

/// Certificates of the quorum.
#[derive(Default)]
pub(super) struct QuorumSecrets {
    /// The certificates that the server list names, if all of them are here.
    pub(super) newest: Option<Material>,
    /// The certificates that the pods of this incarnation mount.
    pub(super) mounted: Option<Material>,
    /// The Secrets that the server list names and that are not here, or not complete.
    pub(super) missing: Vec<String>,
}

impl QuorumSecrets {
    /// The certificates with which the agent connects to servers. While those of a new list are missing, the agent uses
    /// those that servers mount.
    pub(super) fn usable(&self) -> Option<&Material> {
        self.newest.as_ref().or(self.mounted.as_ref())
    }
}

/// Adds the agent's own Secrets, of every incarnation that has objects here.
pub(super) async fn copies(
    context: &AgentContext,
    namespace: &str,
    name: &str,
    list: Option<&Ensemble>,
    live: &mut LiveObjects,
) -> Result<(), Error> {
    let mut incarnations: BTreeSet<String> =
        live.values().filter_map(|object| object.labels().get(INCARNATION_LABEL).cloned()).collect();
    let listed = list.into_iter().flat_map(|list| list.incarnation.iter().chain(&list.former_incarnations));
    incarnations.extend(listed.cloned());
    for secret in incarnations.iter().flat_map(|of| [quorum_secret(name, of), client_copy(name, of)]) {
        let found = context.api(namespace, Kind::Secret).get_opt(&secret).await;
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
    context: &AgentContext,
    namespace: &str,
    name: &str,
    list: Option<&Ensemble>,
    live: &LiveObjects,
) -> Result<QuorumSecrets, Error> {
    let Some(list) = list else { return Ok(QuorumSecrets::default()) };
    let mounted = copied(live, &quorum_secret(name, list.incarnation.as_deref().unwrap_or_default()));
    let (newest, missing) = match &list.tls {
        Some(tls) => listed(context, namespace, tls).await?,
        None => (None, Vec::new()),
    };
    Ok(QuorumSecrets { newest, mounted, missing })
}

/// The certificates for clients. Pods mount a copy of them.
pub(super) async fn client(
    context: &AgentContext,
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    live: &LiveObjects,
) -> Result<AcceptedCertificates, Error> {
    let (Some(list), Some(client)) = (list, &object.spec.tls.client) else {
        return Ok(AcceptedCertificates::default());
    };
    let copy = copied(live, &client_copy(&object.name_any(), list.incarnation.as_deref().unwrap_or_default()));
    let name = &client.secret_name;
    if !client_certificates::is_name(name) {
        return Ok(client_certificates::accept(name, SecretState::Misnamed, copy));
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let secret = api.get_opt(name).await.during(|| format!("reading Secret {name}"))?;
    Ok(client_certificates::accept(name, state(secret, copy.as_ref()), copy))
}

fn state(secret: Option<Secret>, copy: Option<&Material>) -> SecretState {
    let Some(secret) = secret else { return SecretState::Missing };
    // A Secret that Karmada propagated keeps this annotation when Karmada releases it. A Secret that was created in this
    // cluster has neither mark and is accepted too.
    let released =
        secret.annotations().contains_key(CONFLICT_RESOLUTION) && !secret.labels().contains_key(KARMADA_MANAGED_LABEL);
    match complete(&secret.data.unwrap_or_default()) {
        Ok(material) => complete_state(material, copy, released, Timestamp::now()),
        Err(key) => SecretState::Partial(key),
    }
}

/// A Secret that holds all three keys. `mczk server` takes an expired certificate of the agent's copy, because ZooKeeper would
/// not start without any. But an expired one of the user must not replace a copy that is valid. Authorities that servers trust already
/// are not asked for their subjects: a renewal beside them must reach the servers.
fn complete_state(material: Material, copy: Option<&Material>, released: bool, now: Timestamp) -> SecretState {
    let Material { certificate, key, authorities } = &material;
    let sound = check(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes());
    let is_trusted = copy.is_some_and(|copy| copy.authorities == *authorities);
    let subjects = || if is_trusted { Ok(()) } else { check_subjects(authorities.as_bytes()) };
    if let Err(unsound) = sound.and_then(|()| subjects()) {
        return SecretState::Unsound(unsound.to_string());
    }
    // The first one is the server's own.
    let own = pki::validities(certificate).into_iter().next();
    match own.and_then(|validity| invalid(validity, now)) {
        Some(why) => SecretState::Unsound(format!("the certificate in tls.crt {why}")),
        None if released => SecretState::Released(material),
        None => SecretState::Sound(material),
    }
}

/// How long the certificates are valid that servers mount.
pub(super) fn lifetimes(quorum: Option<&Material>, client: Option<&Material>) -> Lifetimes {
    Lifetimes { quorum: quorum.map(lifetime), client: client.map(lifetime) }
}

fn lifetime(material: &Material) -> Lifetime {
    Lifetime { chain: pki::validities(&material.certificate), authorities: pki::validities(&material.authorities) }
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
}

/// The certificates of a Secret, or the key that holds no text.
fn complete(data: &BTreeMap<String, ByteString>) -> Result<Material, &'static str> {
    let text = |key: &'static str| text(data, key).ok_or(key);
    Ok(Material { certificate: text("tls.crt")?, key: text("tls.key")?, authorities: text("ca.crt")? })
}

/// The certificates that a server list names: the identity and every trusted authority, or nothing if one is missing. With
/// the names of the missing Secrets.
async fn listed(
    context: &AgentContext,
    namespace: &str,
    tls: &EnsembleTls,
) -> Result<(Option<Material>, Vec<String>), Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let read = async |name: &str| -> Result<BTreeMap<String, ByteString>, Error> {
        let secret = api.get_opt(name).await.during(|| format!("reading Secret {name}"))?;
        Ok(secret.and_then(|secret| secret.data).unwrap_or_default())
    };
    let mut missing = Vec::new();
    let identity = read(&tls.identity).await?;
    let identity = text(&identity, "tls.crt").zip(text(&identity, "tls.key"));
    if identity.is_none() {
        missing.push(tls.identity.clone());
    }
    let mut authorities = String::new();
    for name in &tls.trust {
        match text(&read(name).await?, "ca.crt") {
            Some(authority) => {
                authorities.push_str(authority.trim_end());
                authorities.push('\n');
            }
            None => missing.push(name.clone()),
        }
    }
    let complete = identity.filter(|_| missing.is_empty() && !authorities.is_empty());
    Ok((complete.map(|(certificate, key)| Material { certificate, key, authorities }), missing))
}

/// The certificates of a Secret that pods mount.
fn copied(live: &LiveObjects, secret: &str) -> Option<Material> {
    let secret = live.get(&(Kind::Secret, secret.to_owned()))?.clone();
    let data = serde_json::from_value::<Secret>(serde_json::to_value(secret).ok()?).ok()?.data?;
    complete(&data).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    #[rstest]
    #[case::both_long(400, 300, None)]
    #[case::identity(400, 20, Some(20))]
    #[case::authority_ends_both(10, 20, Some(10))]
    fn chain_and_authority_count(#[case] authority: i32, #[case] identity: i32, #[case] expected: Option<i32>) {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let ca = pki::authority("a", now, DAY * authority).unwrap();
        let issued = pki::identity("i", (&ca.certificate, &ca.key), now, DAY * identity).unwrap();
        // An authority that has expired does no harm beside a valid one.
        let former = pki::authority("former", now - DAY * 30, DAY).unwrap();
        let material = Material {
            certificate: issued.certificate,
            key: issued.key,
            authorities: former.certificate + &ca.certificate,
        };
        assert_eq!(lifetime(&material).ending(now), expected.map(|days| now + DAY * days));
    }

    /// Karmada brings it to all clusters at once.
    #[rstest]
    #[case::valid(10, None)]
    #[case::expired(40, Some("the certificate in tls.crt has expired on "))]
    #[case::of_the_future(-400, Some("the certificate in tls.crt is valid only from "))]
    fn a_certificate_that_is_not_valid_now_keeps_the_copy(#[case] days: i32, #[case] why: Option<&str>) {
        let made = Timestamp::from_second(1_700_000_000).unwrap();
        let issue = |life| {
            let ca = pki::authority("a", made, DAY * life).unwrap();
            let issued = pki::identity("i", (&ca.certificate, &ca.key), made, DAY * life).unwrap();
            Material { certificate: issued.certificate, key: issued.key, authorities: ca.certificate }
        };
        let (newest, copy) = (issue(30), issue(300));
        let state = complete_state(newest.clone(), Some(&copy), false, made + DAY * days);
        let accepted = client_certificates::accept("s", state, Some(copy.clone()));
        assert_eq!(accepted.material, Some(if why.is_some() { copy } else { newest }));
        assert_eq!(accepted.problem.is_some(), why.is_some());
        assert!(why.is_none_or(|why| accepted.problem.unwrap().contains(why)));
    }

    /// ZooKeeper trusts one of two authorities with one subject. If servers have both already, the agent accepts a renewed certificate.
    #[rstest]
    #[case::new_to_the_servers(false, Some("two authorities with the same subject"))]
    #[case::as_servers_have_them(true, None)]
    fn authorities_of_one_subject(#[case] known: bool, #[case] why: Option<&str>) {
        let now = Timestamp::now();
        let (former, ca) = (pki::authority("a", now, DAY).unwrap(), pki::authority("a", now, DAY).unwrap());
        let issued = pki::identity("i", (&ca.certificate, &ca.key), now, DAY).unwrap();
        let authorities = format!("{}{}", former.certificate, ca.certificate);
        let newest = Material { certificate: issued.certificate, key: issued.key, authorities };
        let copy = Material { certificate: String::new(), ..newest.clone() };
        let state = complete_state(newest, Some(&copy).filter(|_| known), false, now);
        match state {
            SecretState::Unsound(said) => assert!(why.is_some_and(|why| said.contains(why)), "{said}"),
            _ => assert_eq!(why, None),
        }
    }

    #[test]
    fn certificates_that_cannot_be_read_have_no_end() {
        let text = || "no certificate".to_owned();
        let material = Material { certificate: text(), key: text(), authorities: text() };
        assert_eq!(lifetime(&material).ending(Timestamp::UNIX_EPOCH), None);
    }
}
