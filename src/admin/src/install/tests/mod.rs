//! Installations that end after each of their writes, and what they check before the first one.

pub(in crate::install) mod world;

use std::sync::{Arc, Mutex};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::{
    Install,
    webhook_authority::{Authority, Name},
};
use crate::terminal::{error::Error, output::Exit};
use world::{World, targets};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    install: Install,
}

const URL: &str = "--url=https://mczk.example.org";
const ISSUER_A: &str = "--certificate-issuer=Issuer/a";
const ISSUER_B: &str = "--certificate-issuer=Issuer/b";
const NEWER: &str = "--image=newer";
const GIVEN: &str = "--certificate-secret=own";

/// Runs the command, and returns what is left.
async fn run(world: World, flags: &[&str]) -> (Result<Exit, Error>, World) {
    let image = if flags.contains(&NEWER) { &[][..] } else { &["--image=mczk"] };
    let fixed = ["install", "--namespaces=zookeeper", "--without-agents"];
    let line = Line::try_parse_from(fixed.iter().chain(image).chain(flags)).unwrap();
    let world = Arc::new(Mutex::new(world));
    let endpoint = line.install.webhook.endpoint("mczk-system").unwrap();
    let result = line.install.install_in(&targets(&world), &endpoint).await;
    let world = world.lock().unwrap().clone();
    (result, world)
}

async fn done(world: World, flags: &[&str]) -> World {
    let (result, world) = run(world, flags).await;
    assert_eq!(result.unwrap(), Exit::Fine);
    assert_eq!(world.broken, Vec::<String>::new());
    world
}

/// A user's Secret with a certificate of another authority.
fn own_secret() -> serde_json::Value {
    let now = Timestamp::now();
    let authority = Authority::make(now, 3650).unwrap();
    let made = authority.certify(&[Name::Dns("mczk.example.org".to_owned())], now, 90).unwrap();
    let [crt, key, ca] = [made.pem, made.key, authority.pem].map(|text| STANDARD.encode(text));
    json!({ "metadata": { "name": "own" }, "data": { "tls.crt": crt, "tls.key": key, "ca.crt": ca } })
}

fn lose_authority(world: &mut World) {
    world.delete_secret("mczk-webhook-authority");
}

fn add_own(world: &mut World) {
    world.put_secret("own", &own_secret());
}

fn renew_issuer(world: &mut World) {
    world.new_issuer("a");
}

fn nothing(_: &mut World) {}

/// Whatever changes the certificate of the webhook: the command ends after each of its writes, and runs again. At each moment
/// Karmada trusts every certificate that an operator may serve, and at the end only the new authority.
#[rstest]
#[case::lost_authority(&[URL], lose_authority, &[URL])]
#[case::first_issuer(&[URL], nothing, &[URL, ISSUER_A])]
#[case::no_issuer_any_more(&[URL, ISSUER_A], nothing, &[URL])]
#[case::other_issuer(&[URL, ISSUER_A], nothing, &[URL, ISSUER_B])]
#[case::other_authority_and_name(&[URL, ISSUER_A], renew_issuer, &["--url=https://new.example.org", ISSUER_A])]
#[case::first_secret_of_a_user(&[URL], add_own, &[URL, GIVEN])]
#[case::no_secret_of_a_user_any_more(&[URL, GIVEN], nothing, &[URL])]
#[case::other_name(&[URL], nothing, &["--url=https://new.example.org"])]
#[case::upgrade(&[URL], nothing, &[URL, NEWER])]
#[tokio::test(start_paused = true)]
async fn karmada_trusts_what_is_served_after_each_write(
    #[case] first: &[&str],
    #[case] change: fn(&mut World),
    #[case] flags: &[&str],
) {
    let mut world = World::new();
    if first.contains(&GIVEN) {
        add_own(&mut world);
    }
    let flags: Vec<&str> = flags.to_vec();
    let mut begin = done(world, first).await;
    change(&mut begin);
    let whole = done(begin.clone(), &flags).await;
    for end in begin.writes..whole.writes {
        let (result, mut ended) = run(World { end: Some(end), ..begin.clone() }, &flags).await;
        assert!(result.is_err(), "{end}");
        assert_eq!(ended.broken, Vec::<String>::new(), "the run ends after {} writes", end - begin.writes);
        ended.end = None;
        let again = done(ended, &flags).await;
        assert_eq!(again.trusted(), [again.authority()], "{end}");
        assert!(again.secrets().iter().all(|name| !name.ends_with("-trial")), "{:?}", again.secrets());
    }
    let again = done(whole.clone(), &flags).await;
    assert_eq!(again.trusted(), [whole.authority()]);
}

/// Operators that do not become available stop the run. Some still serve the former certificate.
#[tokio::test(start_paused = true)]
async fn operators_that_fail_leave_both_authorities_trusted() {
    let mut world = done(World::new(), &[URL]).await;
    let former = world.authority();
    lose_authority(&mut world);
    world.operators_fail = true;
    let (result, mut world) = run(world, &[URL, "--wait-seconds=1"]).await;
    assert_eq!((result.unwrap(), &world.broken), (Exit::Waits, &Vec::new()));
    assert_eq!(world.trusted(), [world.authority(), former]);
    world.operators_fail = false;
    let world = done(world, &[URL]).await;
    assert_eq!(world.trusted(), [world.authority()]);
}

/// A chart restarts no pods for another content of a Secret, and a hook that does not wait cannot know what they serve.
#[tokio::test(start_paused = true)]
async fn hooks_keep_the_former_authority_while_its_certificate_may_be_served() {
    let mut world = done(World::new(), &[URL]).await;
    let former = world.authority();
    lose_authority(&mut world);
    for stage in ["--stage=prepare", "--stage=finish"] {
        world = done(world, &[URL, "--without-operator", stage, "--wait-seconds=0"]).await;
    }
    assert_eq!(world.trusted(), [world.authority(), former]);
    world.wait();
    let world = done(world, &[URL, "--without-operator", "--stage=finish", "--wait-seconds=0"]).await;
    assert_eq!(world.trusted(), [world.authority()]);
}

/// A user's Secret of that name is not the command's.
#[tokio::test]
async fn a_secret_of_a_user_with_the_name_of_the_trial_stays() {
    let mut world = done(World::new(), &[URL]).await;
    let mut secret = own_secret();
    secret["metadata"]["name"] = json!("mczk-webhook-tls-trial");
    world.put_secret("mczk-webhook-tls-trial", &secret);
    let (result, world) = run(world.clone(), &[URL, ISSUER_A]).await;
    let text = result.unwrap_err().to_string();
    assert!(
        text.starts_with("mczk install did not make Secret mczk-system/mczk-webhook-tls-trial of the host"),
        "{text}"
    );
    let world = done(world, &[URL]).await;
    assert!(world.secrets().iter().any(|name| name.ends_with("-trial")), "{:?}", world.secrets());
}

/// What an API server would refuse is known before the first write.
#[rstest]
#[case::namespace_of_karmada(World::new(), &["--namespaces=absent"], "the namespace absent does not exist: create it")]
#[case::namespace_of_the_host(World::new(), &["--without-operator"], "the namespace mczk-system does not exist")]
#[case::right_in_karmada(World { forbidden: Some("clusterroles"), ..World::new() }, &[], "not allowed: User \"u\" cannot")]
#[case::right_in_the_host(World { forbidden: Some("deployments"), ..World::new() }, &[], "not allowed: User \"u\" cannot")]
#[case::right_for_the_last_object(
    World { forbidden: Some("resourceinterpreterwebhookconfigurations"), ..World::new() }, &[], "not allowed: "
)]
#[case::kind(World { unserved: Some("clusterpropagationpolicies"), ..World::new() }, &[], "does not serve this kind")]
#[case::secret_of_the_user(World::new(), &[GIVEN], "--certificate-secret: Secret mczk-system/own of the host does not exist")]
#[case::address_of_this_machine(
    World::new(), &["--karmada-server=https://localhost:5443"], "--karmada-server: in a pod, localhost is the pod itself"
)]
#[case::pull_secret(World::new(), &["--pull-secret=pull"], "--pull-secret: the host has no Secret mczk-system/pull")]
#[tokio::test]
async fn nothing_is_written_if_a_write_would_be_refused(
    #[case] world: World,
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    let (result, world) = run(world, &[&[URL], flags].concat()).await;
    let text = result.unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
    assert_eq!(world.writes, 0);
}
