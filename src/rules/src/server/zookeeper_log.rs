//! Lines of `ZooKeeper`'s log as events. Pure.
//!
//! `ZooKeeper`'s own logback.xml, that of its images and that of mczk share one pattern:
//! `%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n`, with the stack trace of an exception below.

use jiff::Timestamp;
use serde::Serialize;

/// Most bytes of the stack trace of one event.
const MAX_TRACE: usize = 32 << 10;
const LEVELS: [&str; 5] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"];

/// The parts of a line of the pattern.
#[derive(Debug, PartialEq, Eq)]
struct Header<'a> {
    time: &'a str,
    level: &'static str,
    thread: &'a str,
    logger: &'a str,
    message: &'a str,
}

/// The parts of a line; `None` if it is not of the pattern.
fn header(line: &str) -> Option<Header<'_>> {
    let (time, rest) = line.split_once(" [myid:")?;
    if !time.starts_with(|c: char| c.is_ascii_digit()) || time.len() > 40 {
        return None;
    }
    let (_, rest) = rest.split_once("] - ")?;
    let (word, origin) = rest.split_once(" [")?;
    let level = LEVELS.into_iter().find(|level| *level == word.trim_end())?;
    // The end of an empty message is cut with the end of the line.
    let (origin, message) = origin.split_once("] - ").or_else(|| Some((origin.strip_suffix("] -")?, "")))?;
    // The name of a thread may hold colons and brackets.
    let (thread, place) = origin.rsplit_once(':')?;
    let logger = place.split_once('@').map_or(place, |(logger, _)| logger);
    Some(Header { time, level, thread, logger, message })
}

/// True if the line only says that `ZooKeeper`'s admin server answers its parent process, which alone reaches it. There are
/// hundreds a minute, and they would hide what matters.
#[must_use]
pub fn is_own_question(line: &str) -> bool {
    let Some(Header { level, logger, message, .. }) = header(line) else { return false };
    let answers = match level {
        "INFO" => message == "running stat",
        "WARN" => message == "This ZooKeeper instance is not currently serving requests for command",
        _ => false,
    };
    answers && logger.rsplit('.').next().is_some_and(|class| class.starts_with("Commands"))
}

/// True if the line continues a stack trace.
fn continues_trace(line: &str) -> bool {
    line.starts_with(char::is_whitespace) || line.starts_with("Caused by: ") || line.starts_with("Suppressed: ")
}

/// True if the line names an exception, as the first line of a stack trace does: `java.io.IOException: Broken pipe`.
fn names_exception(line: &str) -> bool {
    let name = line.split_once(": ").map_or(line, |(name, _)| name);
    let class = name.rsplit('.').next().unwrap_or_default();
    name.contains('.')
        && class.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._$".contains(c))
}

/// An event as one line of JSON, with the names of fields that the events of mczk have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEvent {
    level: &'static str,
    target: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    logger: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    /// Time in the clock and zone of the Java virtual machine, as the line has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    exception: String,
    /// Lines of the stack trace that were too many.
    #[serde(skip_serializing_if = "is_zero")]
    dropped_lines: usize,
}

#[derive(Serialize)]
struct LogLine<'a> {
    timestamp: String,
    #[serde(flatten)]
    event: &'a LogEvent,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl LogEvent {
    /// The event of a line. One that is not of the pattern is its own message.
    fn of(line: &str, level: &'static str) -> Self {
        let text = |text: &str| Some(text.to_owned());
        let (level, message, logger, thread, time) = match header(line) {
            Some(head) => (head.level, head.message, text(head.logger), text(head.thread), text(head.time)),
            None => (level, line, None, None, None),
        };
        let message = message.to_owned();
        Self { level, target: "zookeeper", message, logger, thread, time, exception: String::new(), dropped_lines: 0 }
    }

    fn add(&mut self, line: &str) {
        if self.exception.len() + line.len() > MAX_TRACE {
            self.dropped_lines += 1;
            return;
        }
        if !self.exception.is_empty() {
            self.exception.push('\n');
        }
        self.exception.push_str(line);
    }

    /// The event as JSON in one line; `now` is the time at which it was read.
    #[must_use]
    pub fn json(&self, now: Timestamp) -> String {
        let line = LogLine { timestamp: format!("{now:.6}"), event: self };
        serde_json::to_string(&line).unwrap_or_else(|_| self.message.clone())
    }
}

/// Joins the lines of a stream to events.
#[derive(Debug)]
pub struct Fold {
    /// Level of lines that are not of the pattern.
    level: &'static str,
    pending: Option<LogEvent>,
}

impl Fold {
    /// A stream whose lines without a level have this one.
    #[must_use]
    pub const fn new(level: &'static str) -> Self {
        Self { level, pending: None }
    }

    /// Adds a line. Returns the event that it completes: the one before.
    pub fn add(&mut self, line: &str) -> Option<LogEvent> {
        if let Some(pending) = &mut self.pending {
            let begins = pending.exception.is_empty() && pending.logger.is_some() && names_exception(line);
            if begins || continues_trace(line) {
                pending.add(line);
                return None;
            }
        }
        self.pending.replace(LogEvent::of(line, self.level))
    }

    /// The event that waits for its end.
    pub fn end(&mut self) -> Option<LogEvent> {
        self.pending.take()
    }

    /// True if an event waits for its end.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn events(lines: &[&str]) -> Vec<Value> {
        let mut fold = Fold::new("INFO");
        let mut all: Vec<LogEvent> = lines.iter().filter_map(|line| fold.add(line)).collect();
        all.extend(fold.end());
        assert!(!fold.is_pending());
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        all.iter().map(|event| serde_json::from_str(&event.json(now)).unwrap()).collect()
    }

    #[rstest]
    #[case::state("INFO ", "Commands@827", "running stat", true)]
    #[case::long_name("INFO ", "o.a.z.s.a.Commands$SrvrCommand@851", "running stat", true)]
    #[case::no_quorum(
        "WARN ",
        "Commands@176",
        "This ZooKeeper instance is not currently serving requests for command",
        true
    )]
    #[case::an_error("ERROR", "Commands@827", "running stat", false)]
    #[case::another_command("INFO ", "Commands@100", "running restore", false)]
    #[case::another_class("INFO ", "PrepRequestProcessor@669", "running stat", false)]
    #[case::of_a_client("INFO ", "NIOServerCnxn@516", "Processing srvr command from /127.0.0.1:46012", false)]
    fn own_questions(#[case] level: &str, #[case] place: &str, #[case] message: &str, #[case] expected: bool) {
        let line = format!("2026-11-23 06:15:01,770 [myid:1] - {level} [qtp1-28:{place}] - {message}");
        assert_eq!(is_own_question(&line), expected);
    }

    #[rstest]
    #[case::official(
        "2026-11-23 05:23:26,282 [myid:] - ERROR [SyncThread:1:o.a.z.s.ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : SyncThread:1",
        ["ERROR", "SyncThread:1", "o.a.z.s.ZooKeeperCriticalThread", "Severe unrecoverable error, from thread : SyncThread:1"]
    )]
    #[case::brackets_in_the_thread(
        "2026-11-23 06:15:01,770 [myid:2] - INFO  [QuorumPeer[myid=2](plain=[0:0:0:0:0:0:0:0]:2181)(secure=disabled):o.a.z.s.q.QuorumPeer@1559] - LEADING - took 3 ms",
        ["INFO", "QuorumPeer[myid=2](plain=[0:0:0:0:0:0:0:0]:2181)(secure=disabled)", "o.a.z.s.q.QuorumPeer", "LEADING - took 3 ms"]
    )]
    #[case::text_of_a_client(
        "2026-11-23 06:15:01,770 [myid:] - WARN  [ProcessThread:PrepRequestProcessor@669] - Invalid path x - ERROR [a:b@1] - c",
        ["WARN", "ProcessThread", "PrepRequestProcessor", "Invalid path x - ERROR [a:b@1] - c"]
    )]
    #[case::empty_message(
        "2026-11-23 06:15:01,770 [myid:] - INFO  [main:o.a.z.ZooKeeperMain@1] -",
        ["INFO", "main", "o.a.z.ZooKeeperMain", ""]
    )]
    fn lines_of_the_pattern(#[case] line: &str, #[case] expected: [&str; 4]) {
        let [level, thread, logger, message] = expected;
        let event = &events(&[line])[0];
        assert_eq!(
            [&event["level"], &event["thread"], &event["logger"], &event["message"], &event["target"]],
            [level, thread, logger, message, "zookeeper"]
        );
        assert!(event["time"].as_str().unwrap().starts_with("2026-11-23 0"));
        assert_eq!(event["timestamp"], "2023-11-14T22:13:20.000000Z");
    }

    #[test]
    fn a_stack_trace_belongs_to_its_event() {
        let all = events(&[
            "2026-11-23 06:15:01,770 [myid:1] - WARN  [RecvWorker:2:o.a.z.s.q.QuorumCnxManager$RecvWorker@1402] - Connection broken for id 2",
            "java.net.SocketException: Socket closed",
            "\tat java.base/sun.nio.ch.NioSocketImpl.endRead(Unknown Source)",
            "Caused by: java.io.EOFException",
            "\t... 5 common frames omitted",
            "2026-11-23 06:15:01,771 [myid:1] - INFO  [main:o.a.z.Environment@98] - next",
        ]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["message"], "Connection broken for id 2");
        let trace = all[0]["exception"].as_str().unwrap();
        assert_eq!(trace.lines().count(), 4);
        assert!(trace.starts_with("java.net.SocketException: Socket closed\n\tat "), "{trace}");
        assert_eq!((&all[1]["message"], &all[1]["exception"]), (&json!("next"), &Value::Null));
    }

    #[test]
    fn a_line_that_is_not_of_the_pattern_is_an_event() {
        let all = events(&[
            "ZooKeeper JMX enabled by default",
            "Exception in thread \"main\" java.lang.NoClassDefFoundError: x",
            "\tat org.apache.zookeeper.server.quorum.QuorumPeerMain.main(QuorumPeerMain.java:90)",
            "{\"json\": \"\u{1b}[0m of another encoder\"}",
            "",
        ]);
        assert_eq!(all.len(), 4);
        assert_eq!(
            (&all[0]["level"], &all[0]["message"]),
            (&json!("INFO"), &json!("ZooKeeper JMX enabled by default"))
        );
        assert!(all[1]["exception"].as_str().unwrap().contains("QuorumPeerMain"));
        assert_eq!(all[2]["message"], "{\"json\": \"\u{1b}[0m of another encoder\"}");
    }

    #[test]
    fn a_trace_without_end_is_bounded() {
        let frame = format!("\tat {}", "x".repeat(1000));
        let mut lines = vec!["2026-11-23 06:15:01,770 [myid:] - ERROR [main:A@1] - x"];
        lines.extend(std::iter::repeat_n(frame.as_str(), 100));
        let event = &events(&lines)[0];
        let kept = event["exception"].as_str().unwrap();
        assert!(kept.len() <= MAX_TRACE);
        assert_eq!(kept.lines().count() as u64 + event["dropped_lines"].as_u64().unwrap(), 100);
    }
}
