use std::time::Duration;

use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::{dashboard::poll::PollSource, fixtures::multi_cluster_zookeeper};
use mczk_rules::card::{Card, card};
use mczk_runtime::shutdown;

const HOST: &str = "127.0.0.1:4000";

fn cards(names: &[(&str, &str)]) -> Vec<Card> {
    let object = |(namespace, name): &(&str, &str)| {
        card(&multi_cluster_zookeeper(json!({ "metadata": { "namespace": namespace, "name": name } })), None, None)
    };
    names.iter().map(object).collect()
}

struct World {
    router: Router,
    poll: Poll,
    stop: shutdown::Trigger,
}

fn world() -> World {
    let (stop, stopped) = shutdown::channel();
    let poll = Poll::every(Duration::from_secs(3600));
    poll.publish(Ok(cards(&[("a", "one"), ("b", "two")])));
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no route")))
    });
    let client = kube::Client::new(service, "n");
    let steps = OpenSteps::of(PollSource { client, namespace: None, shows_errors: true });
    World { router: router(Access::local("secret", 4000), poll.clone(), steps, stopped), poll, stop }
}

async fn ask(world: &World, request: http::request::Builder) -> Response {
    world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

fn authorized(path: &str) -> http::request::Builder {
    http::Request::get(path).header("Host", HOST).header("Authorization", "Bearer secret")
}

async fn names(response: Response) -> Vec<String> {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let all: Vec<Value> = serde_json::from_slice(&body).unwrap();
    all.iter().map(|ensemble| ensemble["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn ensembles_of_a_namespace_and_of_all() {
    let world = world();
    assert_eq!(names(ask(&world, authorized("/api/v1/ensembles")).await).await, ["one", "two"]);
    assert_eq!(names(ask(&world, authorized("/api/v1/namespaces/b/ensembles")).await).await, ["two"]);
}

#[rstest]
#[case::no_token(http::Request::get("/api/v1/ensembles").header("Host", HOST), StatusCode::UNAUTHORIZED)]
#[case::wrong_token(http::Request::get("/api/v1/events").header("Host", HOST).header("Authorization", "Bearer x"), StatusCode::UNAUTHORIZED)]
#[case::token_in_the_url(http::Request::get("/api/v1/ensembles?token=secret").header("Host", HOST), StatusCode::UNAUTHORIZED)]
#[case::other_host(http::Request::get("/").header("Host", "attacker.example:4000"), StatusCode::MISDIRECTED_REQUEST)]
#[case::write(http::Request::post("/api/v1/ensembles").header("Host", HOST).header("Authorization", "Bearer secret"), StatusCode::METHOD_NOT_ALLOWED)]
#[case::no_path(authorized("/api/v1/secrets"), StatusCode::NOT_FOUND)]
#[case::steps_without_a_token(http::Request::get("/api/v1/namespaces/a/ensembles/one/steps").header("Host", HOST), StatusCode::UNAUTHORIZED)]
#[case::steps_that_cannot_be_read(
    authorized("/api/v1/namespaces/a/ensembles/one/steps"),
    StatusCode::SERVICE_UNAVAILABLE
)]
#[tokio::test]
async fn refused(#[case] request: http::request::Builder, #[case] expected: StatusCode) {
    assert_eq!(ask(&world(), request).await.status(), expected);
}

#[rstest]
#[case("/")]
#[case("/style.css")]
#[case("/script.js")]
#[case("/icon.svg")]
#[case("/nothing")]
#[tokio::test]
async fn every_answer_has_the_headers(#[case] path: &str) {
    let response = ask(&world(), http::Request::get(path).header("Host", HOST)).await;
    for (name, value) in HEADERS {
        assert_eq!(response.headers()[&name], value, "{name} of {path}");
    }
}

#[tokio::test]
async fn a_stream_has_the_state_and_each_change_once() {
    let World { router, poll, stop } = world();
    let request = authorized("/api/v1/namespaces/a/events").body(Body::empty()).unwrap();
    let mut body = router.oneshot(request).await.unwrap().into_body();
    let mut next = async || {
        let mut event = String::new();
        // The parts of an event are frames of their own.
        while !event.ends_with("\n\n") {
            let frame = body.frame().await?.unwrap().into_data().unwrap();
            event.push_str(std::str::from_utf8(&frame).unwrap());
        }
        Some(event)
    };
    let first = next().await.unwrap();
    assert!(first.contains("event: ensembles") && first.contains("one") && !first.contains("two"), "{first}");
    // A change in another namespace, and a read without a change, are no events.
    poll.publish(Ok(cards(&[("a", "one")])));
    tokio::task::yield_now().await;
    poll.publish(Err("no answer".to_owned()));
    let second = next().await.unwrap();
    assert!(second.contains("event: failure") && second.contains("no answer"), "{second}");
    poll.publish(Ok(cards(&[("a", "one")])));
    assert!(next().await.unwrap().contains("event: ensembles"), "the state comes back after a failure");
    stop.request_shutdown();
    assert_eq!(next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_has_comments() {
    let world = world();
    let mut body = ask(&world, authorized("/api/v1/events")).await.into_body();
    let mut text = String::new();
    // The array of two ensembles has five parts, and the event two more.
    for _ in 0..8 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    assert!(text.starts_with("event: ensembles\ndata: [") && text.ends_with("]\n\n:\n\n"), "{text}");
}

#[tokio::test]
async fn the_number_of_listeners_is_bounded() {
    let world = world();
    let mut open = Vec::new();
    for _ in 0..MAX_LISTENERS {
        open.push(ask(&world, authorized("/api/v1/events")).await);
    }
    assert!(open.iter().all(|response| response.status() == StatusCode::OK));
    let refused = ask(&world, authorized("/api/v1/events")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "5");
    open.pop();
    assert_eq!(ask(&world, authorized("/api/v1/events")).await.status(), StatusCode::OK);
}

/// Texts of the control plane reach the page as text alone.
#[test]
fn the_script_makes_no_markup_of_text() {
    let script = include_str!("../page/script.js");
    for sink in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "sessionStorage"]
    {
        assert!(!script.contains(sink), "{sink}");
    }
}
