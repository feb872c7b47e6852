use serde_json::json;

use super::*;

fn pod(restarts: i32, state: &serde_json::Value) -> LogSource {
    let status = json!({ "name": CONTAINER, "restartCount": restarts, "image": "", "imageID": "", "ready": true, "state": state });
    source(
        &serde_json::from_value(json!({ "metadata": { "name": "zk-0" }, "status": { "containerStatuses": [status] } }))
            .unwrap(),
    )
}

#[test]
fn a_container_has_a_log_once_it_has_run() {
    let flags = |source: LogSource| (source.started, source.running);
    assert_eq!(flags(pod(0, &json!({ "waiting": {} }))), (false, false));
    assert_eq!(flags(pod(0, &json!({ "running": {} }))), (true, true));
    assert_eq!(flags(pod(0, &json!({ "terminated": { "exitCode": 1 } }))), (true, false));
    assert_eq!(flags(pod(2, &json!({ "waiting": {} }))), (true, false));
}

#[test]
fn lines_are_asked_for_once() {
    let first = LogParams { since_seconds: Some(600), tail_lines: Some(5), ..LogParams::default() };
    let lines = |known: Option<&KnownRun>, is_first, running| {
        let place = next_place(&first, known, is_first, running)?;
        Some((place.params.since_seconds, place.params.tail_lines, place.params.since_time))
    };
    assert_eq!(lines(None, true, true), Some((Some(600), Some(5), None)));
    assert_eq!(lines(None, false, true), Some((None, None, None)), "a new container");
    assert_eq!(lines(Some(&KnownRun::Following), false, true), None);
    let mut place = StreamPosition::beginning(first.clone());
    let unread = KnownRun::Broken(place.clone());
    assert_eq!(lines(Some(&unread), false, true), Some((Some(600), Some(5), None)), "no line was read");
    assert!(place.position.is_new(Timed::of(b"2026-01-01T00:00:02Z a\n")));
    let time = Some("2026-01-01T00:00:02Z".parse().unwrap());
    let ended = KnownRun::Ended(place.clone());
    assert_eq!(lines(Some(&ended), false, true), Some((None, None, time)), "the container runs");
    assert_eq!(lines(Some(&ended), false, false), None, "the container has ended");
    let broken = KnownRun::Broken(place);
    assert_eq!(lines(Some(&broken), false, false), Some((None, None, time)), "its last lines may be unread");
}

/// A client of a cluster with one pod. Its log ends after two lines, and then goes on from the time that is asked for.
fn cluster() -> Client {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        let text = if uri.contains("/log?") {
            assert!(uri.contains("timestamps=true"), "{uri}");
            match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => "2026-01-01T00:00:01Z a\n2026-01-01T00:00:02Z b\n".to_owned(),
                _ if uri.contains("sinceTime=2026-01-01T00%3A00%3A02Z") => {
                    "2026-01-01T00:00:02Z b\n2026-01-01T00:00:02Z c\n2026-01-01T00:00:03Z d\n".to_owned()
                }
                _ => String::new(),
            }
        } else {
            let status = json!({ "name": CONTAINER, "restartCount": 0, "image": "", "imageID": "", "ready": true,
                "state": { "running": {} } });
            let pod =
                json!({ "metadata": { "name": "zk-0", "uid": "u" }, "status": { "containerStatuses": [status] } });
            json!({ "metadata": {}, "items": [pod] }).to_string()
        };
        let body = kube::client::Body::from(text.into_bytes());
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(body)))
    });
    Client::new(service, "n")
}

#[tokio::test(start_paused = true)]
async fn a_log_that_breaks_off_goes_on_without_a_gap() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
    let follower = Follower {
        client: cluster(),
        cluster: "m1".to_owned(),
        index: 0,
        servers: LogServers { namespace: "n".to_owned(), ensemble: "zk".to_owned(), wanted: None, listed: vec![] },
        params: LogParams { follow: true, timestamps: true, tail_lines: Some(2), ..LogParams::default() },
        timestamps: false,
        sender,
    };
    let follower = tokio::spawn(follower.run());
    let mut lines = Vec::new();
    while lines.len() < 4 {
        match receiver.recv().await.unwrap() {
            Output::Line { line, .. } => lines.push(String::from_utf8(line).unwrap()),
            Output::Failure(why) => panic!("{why}"),
        }
    }
    assert_eq!(lines, ["a\n", "b\n", "c\n", "d\n"]);
    follower.abort();
}
