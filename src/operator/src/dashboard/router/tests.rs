use std::time::Duration;

use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use axum::body::Body;

use crate::{
    dashboard::{rendered::Ensembles, source::PollSource},
    fixtures::multi_cluster_zookeeper,
};
use mczk_rules::card::card;
use mczk_runtime::shutdown;

const HOST: &str = "127.0.0.1:4000";

fn ensembles(names: &[(&str, &str)]) -> Ensembles {
    let mut all = Ensembles::with_room(1 << 20);
    for (namespace, name) in names {
        let object = multi_cluster_zookeeper(json!({ "metadata": { "namespace": namespace, "name": name } }));
        all.add(&card(&object, None, None));
    }
    all.of_total(Some(names.len()))
}

/// Publishes these ensembles in their namespaces and in all.
fn publish(poll: &Poll, names: &[(&str, &str)]) {
    poll.publish(None, Ok(ensembles(names)));
    for namespace in ["a", "b"] {
        let of_namespace: Vec<_> = names.iter().copied().filter(|(of, _)| *of == namespace).collect();
        poll.publish(Some(namespace), Ok(ensembles(&of_namespace)));
    }
}

struct World {
    router: Router,
    poll: Poll,
    stop: shutdown::Trigger,
}

fn world() -> World {
    let (stop, stopped) = shutdown::channel();
    let poll = Poll::every(Duration::from_secs(3600));
    publish(&poll, &[("a", "one"), ("b", "two")]);
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

/// The client that the operator reads with may read more than the caller. So no name of a URL may be more than one segment of
/// a path of the API server.
#[rstest]
#[case::parent("..")]
#[case::other_object("..%2F..%2F..%2Fb%2Fmulticlusterzookeepers%2Ftwo")]
#[case::slash("a%2Fb")]
#[case::dot("a.b")]
#[case::query("a%3Fwatch=true")]
#[case::fragment("a%23b")]
#[case::escaped_twice("a%252Fb")]
#[case::backslash("a%5Cb")]
#[case::zero("a%00")]
#[case::line("a%0Ab")]
#[case::space("a%20b")]
#[case::letters("%C3%A4")]
#[case::capitals("A")]
#[case::hyphen("-a")]
#[case::long("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn")]
#[tokio::test]
async fn a_name_of_a_url_is_one_segment(#[case] name: &str) {
    let asked = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let all = asked.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        all.lock().unwrap().push(request.uri().to_string());
        std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no route")))
    });
    let client = kube::Client::new(service, "n");
    let source = PollSource { client, namespace: None, shows_errors: true };
    let (poll, (_stop, stopped)) = (Poll::every(Duration::from_millis(1)), shutdown::channel());
    let router = router(Access::local("secret", 4000), poll.clone(), OpenSteps::of(source.clone()), stopped.clone());
    let _running = tokio::spawn(poll.run(source, stopped));
    for path in [
        format!("/api/v1/namespaces/a/ensembles/{name}/steps"),
        format!("/api/v1/namespaces/{name}/ensembles/one/steps"),
        format!("/api/v1/namespaces/{name}/ensembles"),
        format!("/api/v1/namespaces/{name}/events"),
    ] {
        let response = router.clone().oneshot(authorized(&path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status();
        // A stream would follow the namespace.
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!((status, &**asked.lock().unwrap()), (StatusCode::BAD_REQUEST, &[][..]), "{path}");
    }
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
    publish(&poll, &[("a", "one")]);
    tokio::task::yield_now().await;
    poll.publish(Some("a"), Err("no answer".to_owned()));
    let second = next().await.unwrap();
    assert!(second.contains("event: failure") && second.contains("no answer"), "{second}");
    publish(&poll, &[("a", "one")]);
    assert!(next().await.unwrap().contains("event: ensembles"), "the state comes back after a failure");
    stop.request_shutdown();
    assert_eq!(next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_has_comments() {
    let world = world();
    let mut body = ask(&world, authorized("/api/v1/events")).await.into_body();
    let mut text = String::new();
    // The event of two ensembles has five parts.
    for _ in 0..6 {
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

/// The next event of a stream, or its next comment; `None` at its end.
async fn event_of(body: &mut Body) -> Option<String> {
    let mut event = String::new();
    while !event.ends_with("\n\n") {
        event.push_str(std::str::from_utf8(&body.frame().await?.unwrap().into_data().unwrap()).unwrap());
    }
    Some(event)
}

/// A stream whose client reads slowly holds no read that is over: it continues with the newest one.
#[tokio::test]
async fn a_slow_client_gets_the_newest_texts() {
    let world = world();
    let mut body = ask(&world, authorized("/api/v1/events")).await.into_body();
    let head = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(head, "event: ensembles\ndata: [");
    let (old, new) = (ensembles(&[("a", "one")]), [("a", "one"), ("a", "zero"), ("b", "three")]);
    let shared = old.after(None).unwrap().1.clone();
    world.poll.publish(None, Ok(old));
    publish(&world.poll, &new);
    assert!(shared.is_unique(), "no stream and no poll holds a text of an older read");
    let rest = event_of(&mut body).await.unwrap();
    assert!(!rest.contains("\"two\"") && rest.contains("\"three\"") && rest.contains("\"zero\""), "{rest}");
    let next = event_of(&mut body).await.unwrap();
    assert!(next.starts_with("event: ensembles\n"), "the former event began with an older read: {next}");
}

#[tokio::test]
async fn what_is_left_out_has_words() {
    let world = world();
    world.poll.publish(None, Ok(ensembles(&[("a", "one")]).of_total(Some(10_000))));
    let words = "Only 1 of 10000 ensembles are shown: name a namespace, or run mczk status";
    let array = ask(&world, authorized("/api/v1/ensembles")).await;
    assert_eq!(array.headers()[header::WARNING], format!("299 mczk \"{words}\""));
    assert_eq!(names(array).await, ["one"]);
    let mut body = ask(&world, authorized("/api/v1/events")).await.into_body();
    assert_eq!(event_of(&mut body).await.unwrap(), format!("event: bound\ndata: {{\"message\":\"{words}\"}}\n\n"));
    assert!(event_of(&mut body).await.unwrap().starts_with("event: ensembles\n"));
    assert!(!ask(&world, authorized("/api/v1/namespaces/a/ensembles")).await.headers().contains_key(header::WARNING));
}

/// An answer that is not read yet has its place among the listeners.
#[tokio::test]
async fn arrays_that_are_not_read_are_bounded() {
    let world = world();
    let mut open = Vec::new();
    for _ in 0..MAX_LISTENERS {
        open.push(ask(&world, authorized("/api/v1/ensembles")).await);
    }
    assert_eq!(ask(&world, authorized("/api/v1/ensembles")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(names(open.pop().unwrap()).await, ["one", "two"]);
    assert_eq!(ask(&world, authorized("/api/v1/ensembles")).await.status(), StatusCode::OK);
}

/// An API server that allows the token `ann` everything and knows no other one. It counts the questions, and answers nothing
/// while it is `away`.
#[derive(Clone, Default)]
struct Decisions {
    questions: Arc<std::sync::atomic::AtomicUsize>,
    away: Arc<std::sync::atomic::AtomicBool>,
}

impl Decisions {
    fn client(&self) -> kube::Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let this = this.clone();
            async move {
                this.questions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // As long as a real API server takes.
                tokio::time::sleep(Duration::from_millis(20)).await;
                if this.away.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(std::io::Error::other("away"));
                }
                let mut review: Value =
                    serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
                let known = review["spec"]["token"] == "ann";
                review["status"] = if review["kind"] == "TokenReview" {
                    json!({ "authenticated": known, "user": { "username": "Ann" } })
                } else {
                    json!({ "allowed": true })
                };
                Ok(http::Response::new(kube::client::Body::from(serde_json::to_vec(&review).unwrap())))
            }
        });
        kube::Client::new(service, "n")
    }

    fn world(&self) -> World {
        let (stop, stopped) = shutdown::channel();
        let poll = Poll::every(Duration::from_secs(3600));
        publish(&poll, &[("a", "one"), ("b", "two")]);
        let steps = OpenSteps::of(PollSource { client: self.client(), namespace: None, shows_errors: false });
        World { router: router(Access::cluster(self.client()), poll.clone(), steps, stopped), poll, stop }
    }
}

fn from(address: &str, token: &str) -> http::request::Builder {
    let address: std::net::IpAddr = address.parse().unwrap();
    http::Request::get("/api/v1/events")
        .header("Authorization", format!("Bearer {token}"))
        .extension(axum::extract::ConnectInfo(address))
}

/// One address sends 200 random tokens a second. It costs the API server little, and no other user notices:
/// one logs in, and one has a page open.
#[tokio::test(start_paused = true)]
async fn random_tokens_of_one_address_harm_no_other_user() {
    let decisions = Decisions::default();
    let world = decisions.world();
    let mut page = ask(&world, from("10.0.0.1", "ann")).await.into_body();
    event_of(&mut page).await.unwrap();
    let mut refused = Vec::new();
    for number in 0..60 * 200 {
        let (status, token) = (&mut refused, format!("random-{number}"));
        status.push(ask(&world, from("10.0.0.66", &token)).await.status());
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    assert!(refused.iter().all(|status| [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE].contains(status)));
    let login = ask(&world, from("10.0.0.2", "ann")).await;
    assert_eq!(login.status(), StatusCode::OK);
    // The page reads on, with comments, although its right is checked again and again.
    assert_eq!(event_of(&mut page).await.as_deref(), Some(":\n\n"));
    let questions = decisions.questions.load(std::sync::atomic::Ordering::Relaxed);
    assert!(questions <= 200, "{questions} questions in a minute");
}

/// Many addresses together leave the API server alone too, and a known token has a budget of its own.
#[tokio::test(start_paused = true)]
async fn random_tokens_of_many_addresses_do_not_end_a_page() {
    let decisions = Decisions::default();
    let world = decisions.world();
    let mut page = ask(&world, from("10.0.0.66", "ann")).await.into_body();
    event_of(&mut page).await.unwrap();
    let ask_from = |number: u32| from(&format!("10.1.{}.{}", number / 250, number % 250), &format!("random-{number}"));
    let began = tokio::time::Instant::now();
    for second in 0..120 {
        let requests = (0..200).map(|number| ask(&world, ask_from(second * 200 + number)));
        let answers = futures::future::join_all(requests).await;
        assert!(answers.iter().all(|answer| answer.status() != StatusCode::OK));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(event_of(&mut page).await.as_deref(), Some(":\n\n"));
    assert_eq!(ask(&world, from("10.9.9.9", "ann")).await.status(), StatusCode::OK);
    let questions = decisions.questions.load(std::sync::atomic::Ordering::Relaxed);
    let most = 10 + 40 + 10 * usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(questions <= most, "{questions} questions, at most {most}");
}

/// A short failure of the API server ends no open page, and a long one does: a right may have been withdrawn.
#[rstest]
#[case::short(Duration::from_secs(20), true)]
#[case::long(Duration::from_secs(90), false)]
#[tokio::test(start_paused = true)]
async fn a_page_outlives_a_short_failure(#[case] failure: Duration, #[case] lives: bool) {
    let decisions = Decisions::default();
    let world = decisions.world();
    let mut page = ask(&world, from("10.0.0.1", "ann")).await.into_body();
    event_of(&mut page).await.unwrap();
    let began = tokio::time::Instant::now();
    let away = async {
        tokio::time::sleep(Duration::from_secs(25)).await;
        decisions.away.store(true, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(failure).await;
        decisions.away.store(false, std::sync::atomic::Ordering::Relaxed);
    };
    let read = async { while began.elapsed() < Duration::from_secs(180) && event_of(&mut page).await.is_some() {} };
    tokio::join!(away, read);
    assert_eq!(began.elapsed() >= Duration::from_secs(180), lives, "{:?}", began.elapsed());
}

/// A client that reads slowly keeps no right that was withdrawn.
#[tokio::test(start_paused = true)]
async fn a_slow_client_is_checked_within_an_event() {
    let decisions = Decisions::default();
    let world = decisions.world();
    let mut page = ask(&world, from("10.0.0.1", "ann")).await.into_body();
    page.frame().await.unwrap().unwrap();
    decisions.away.store(true, std::sync::atomic::Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(page.frame().await.is_none());
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
