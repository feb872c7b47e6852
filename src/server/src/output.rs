//! The output of `ZooKeeper`: copied to the log without secrets, with the last lines kept for the status.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, BufReader},
    sync::Notify,
    time::timeout,
};

use crate::{bounded_line::Line, program::Program};
use mczk_rules::server::zookeeper_log::{Fold, LogEvent, is_own_question};
use mczk_runtime::telemetry::LogFormat;

/// Number of last lines that the process stores of each stream, and characters of each line.
const LAST_LINES: usize = 12;
const LAST_LINE_CHARACTERS: usize = 400;
/// What `ZooKeeper` logs if it cannot read its snapshots or transaction logs.
const UNREADABLE: &str = "Unable to load database on disk";
/// Why, if a record is longer than `jute.maxbuffer` permits, or its length is damaged.
const TOO_LONG: &str = "java.io.IOException: Unreasonable length = ";
/// Thread and class of the line that `ZooKeeper` logs if the thread fails that writes its log.
const FAILED_WRITER: [&str; 2] = ["ERROR [SyncThread:", "ZooKeeperCriticalThread"];
/// Errors of a volume that cannot be written. While a follower copies the leader's transactions, another thread writes, and
/// `ZooKeeper` logs no more than this error.
const CANNOT_WRITE: [&str; 5] =
    ["No space left on device", "Disk quota exceeded", "Input/output error", "File too large", "Read-only file system"];
/// Time without a further line after which an event counts as complete: a stack trace is written at once.
const EVENT_END: Duration = Duration::from_millis(200);

/// Last lines of standard output, then of standard error. Their order in time would differ at every start.
#[derive(Clone, Debug, Default)]
pub struct LastLines([RecentLines; 2]);

/// The last lines of a stream.
type RecentLines = Arc<Mutex<VecDeque<String>>>;

impl LastLines {
    /// The lines so far, without times.
    pub fn text(&self) -> String {
        let streams = self.0.each_ref().map(|last| last.lock().clone());
        without_times(streams.iter().flatten().map(String::as_str))
    }
}

/// A stream of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// The log of one stream.
pub(super) struct OutputLog {
    last: RecentLines,
    secrets: Vec<String>,
    cannot_write: Arc<Notify>,
    /// Joins lines to events; `None` if the lines are copied as they are.
    fold: Option<Fold>,
    write: fn(&str),
}

impl OutputLog {
    /// The log of a stream of the program.
    pub(super) fn new(
        stream: Stream,
        program: &Program,
        LastLines([output, errors]): &LastLines,
        cannot_write: Arc<Notify>,
    ) -> Self {
        let (last, level) = match stream {
            Stream::Output => (output, "INFO"),
            Stream::Errors => (errors, "WARN"),
        };
        Self {
            last: last.clone(),
            secrets: program.secrets.clone(),
            cannot_write,
            fold: (program.log_format == LogFormat::Json).then(|| Fold::new(level)),
            write: print,
        }
    }

    /// Copies a stream to its end. The last event is written even if the task is stopped.
    pub(super) async fn copy(mut self, stream: impl AsyncRead + Unpin) {
        let longest_secret = self.secrets.iter().map(String::len).max().unwrap_or(0);
        let mut reader = BufReader::new(stream);
        let mut line = Line::new(longest_secret);
        loop {
            let read = if self.fold.as_ref().is_some_and(Fold::is_pending) {
                let Ok(read) = timeout(EVENT_END, line.read(&mut reader)).await else {
                    self.write_pending();
                    continue;
                };
                read
            } else {
                line.read(&mut reader).await
            };
            let more = matches!(read, Ok(true));
            if more || !line.is_empty() {
                self.take(&line.text(&self.secrets));
                line.clear();
            }
            if !more {
                return;
            }
        }
    }

    fn take(&mut self, text: &str) {
        // First of all: it joins the ensemble again within some 20 ms.
        if is_failed_write(text) {
            self.cannot_write.notify_one();
        }
        if is_own_question(text) {
            return;
        }
        match &mut self.fold {
            None => (self.write)(text),
            Some(fold) => {
                let complete = fold.add(text);
                self.write_event(complete);
            }
        }
        // A stack trace would push out the error that it belongs to.
        if text.starts_with(char::is_whitespace) {
            return;
        }
        let mut last = self.last.lock();
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(text.chars().take(LAST_LINE_CHARACTERS).collect());
    }

    fn write_pending(&mut self) {
        let pending = self.fold.as_mut().and_then(Fold::end);
        self.write_event(pending);
    }

    fn write_event(&self, event: Option<LogEvent>) {
        if let Some(event) = event {
            (self.write)(&event.json(Timestamp::now()));
        }
    }
}

impl Drop for OutputLog {
    fn drop(&mut self) {
        self.write_pending();
    }
}

fn print(text: &str) {
    // A closed log must not stop ZooKeeper.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Log lines without times. A status contains them, which must not change with every equal failure.
fn without_times<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let time = |c: char| c.is_ascii_digit() || "-:, T.".contains(c);
    let texts = lines.map(|line| {
        line.get(..20).filter(|begin| begin.chars().all(time)).map_or(line, |_| line.trim_start_matches(time))
    });
    let mut distinct = Vec::new();
    for line in texts {
        // Log and standard error contain the same error.
        if !distinct.contains(&line) {
            distinct.push(line);
        }
    }
    distinct.join("\n")
}

/// Why `ZooKeeper` cannot read its snapshots or transaction logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// They are damaged.
    Damaged,
    /// They have a record of this length, and `ZooKeeper` reads no record that long.
    TooLong(u64),
}

/// What the lines, which have no times, say of snapshots and transaction logs that `ZooKeeper` cannot read. `longest` is the
/// length of the longest of these files: no record is longer.
pub(super) fn unreadable(lines: &str, longest: u64) -> Option<Unreadable> {
    let mut messages = lines.lines().filter_map(|line| line.split(" - ").nth(2));
    messages.find(|message| message.starts_with(UNREADABLE))?;
    let length = |line: &str| {
        line.strip_prefix("Caused by: ").unwrap_or(line).strip_prefix(TOO_LONG)?.trim().parse::<u64>().ok()
    };
    let length = lines.lines().filter_map(length).filter(|length| *length <= longest).max();
    Some(length.map_or(Unreadable::Damaged, Unreadable::TooLong))
}

/// True if a log line says that the volume cannot be written. What clients send may be in a message, and no message counts.
fn is_failed_write(line: &str) -> bool {
    let [thread, class] = FAILED_WRITER;
    let origin = line.split(" - ").nth(1).unwrap_or_default();
    let exception = line.strip_prefix("Caused by: ").unwrap_or(line).strip_prefix("java.io.IOException: ");
    (origin.starts_with(thread) && origin.contains(class))
        || exception.is_some_and(|error| CANNOT_WRITE.contains(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::bounded_line::MAX_LINE;

    #[test]
    fn equal_lines_are_reported_once() {
        let lines = [
            "2026-11-21 19:00:00,123 [myid:] - ERROR Invalid config",
            "2026-11-21 19:00:01,456 [myid:] - ERROR Invalid config",
            "Invalid config",
        ];
        assert_eq!(without_times(lines.into_iter()), "[myid:] - ERROR Invalid config\nInvalid config");
    }

    #[rstest]
    #[case::official(
        "2026-11-23 05:23:26,282 [myid:] - ERROR [SyncThread:1:ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : SyncThread:1",
        true
    )]
    #[case::leader_lost(
        "2026-11-23 06:15:01,770 [myid:] - ERROR [FollowerRequestProcessor:12:ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : FollowerRequestProcessor:12",
        false
    )]
    #[case::sent_by_a_client(
        "2026-11-23 06:15:01,770 [myid:] - INFO  [ProcessThread:PrepRequestProcessor@669] - Invalid path x - ERROR [SyncThread:1:ZooKeeperCriticalThread@49] - Severe with session 0x1",
        false
    )]
    #[case::in_the_copy_of_the_leaders_transactions("java.io.IOException: No space left on device", true)]
    #[case::cause("Caused by: java.io.IOException: Input/output error", true)]
    #[case::connection("java.io.IOException: Broken pipe", false)]
    fn failed_writes_are_recognized(#[case] line: &str, #[case] expected: bool) {
        assert_eq!(is_failed_write(line), expected);
    }

    #[rstest]
    #[case::damaged("java.io.IOException: CRC check failed", Some(Unreadable::Damaged))]
    #[case::a_record_longer_than_the_limit(
        "java.io.IOException: Unreasonable length = 3000000",
        Some(Unreadable::TooLong(3_000_000))
    )]
    #[case::as_a_cause(
        "Caused by: java.io.IOException: Unreasonable length = 3000000",
        Some(Unreadable::TooLong(3_000_000))
    )]
    #[case::longer_than_any_file("java.io.IOException: Unreasonable length = 1919251301", Some(Unreadable::Damaged))]
    #[case::no_length("java.io.IOException: Unreasonable length = -7", Some(Unreadable::Damaged))]
    fn a_record_that_is_too_long_is_no_damage(#[case] cause: &str, #[case] expected: Option<Unreadable>) {
        let lines =
            format!("[myid:1] - ERROR [main:o.a.z.s.q.QuorumPeer@1215] - Unable to load database on disk\n{cause}");
        assert_eq!(unreadable(&lines, 64 << 20), expected);
        assert_eq!(unreadable(cause, 64 << 20), None);
    }

    /// Copies `input` with a fold, and returns what was written. The lines are of this thread.
    async fn copied(input: impl AsyncRead + Unpin, secrets: &[&str]) -> Vec<String> {
        thread_local! { static WRITTEN: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) }; }
        let log = OutputLog {
            last: RecentLines::default(),
            secrets: secrets.iter().map(|secret| (*secret).to_owned()).collect(),
            cannot_write: Arc::default(),
            fold: Some(Fold::new("INFO")),
            write: |text| WRITTEN.with_borrow_mut(|all| all.push(text.to_owned())),
        };
        log.copy(input).await;
        WRITTEN.take()
    }

    #[tokio::test]
    async fn the_last_line_is_written_without_its_end() {
        let written = copied(&b"one\ntwo"[..], &[]).await;
        assert_eq!(written.len(), 2, "{written:?}");
        assert!(written[1].contains("\"message\":\"two\""), "{written:?}");
    }

    #[tokio::test]
    async fn questions_of_the_parent_process_are_not_in_the_log() {
        let line = |level: &str, message: &str| {
            format!(
                "2026-11-23 06:15:01,770 [myid:1] - {level} [qtp1-28:o.a.z.s.a.Commands$SrvrCommand@851] - {message}\n"
            )
        };
        let input = [
            line("INFO ", "running stat"),
            line("WARN ", "Close of session 0x0"),
            "java.io.IOException: x\n".to_owned(),
            line("INFO ", "running stat"),
            "\tat y\n".to_owned(),
            line("INFO ", "running restore"),
        ]
        .concat();
        let written = copied(input.as_bytes(), &[]).await;
        assert_eq!(written.len(), 2, "{written:?}");
        assert!(written[0].contains("java.io.IOException: x\\n\\tat y"), "{written:?}");
        assert!(written[1].contains("running restore"), "{written:?}");
    }

    #[tokio::test]
    async fn an_event_is_written_while_the_process_is_silent() {
        let (mut process, output) = tokio::io::duplex(64);
        let writes = async {
            tokio::io::AsyncWriteExt::write_all(&mut process, b"one\ntwo, in").await.unwrap();
            tokio::time::sleep(EVENT_END * 2).await;
            tokio::io::AsyncWriteExt::write_all(&mut process, b" parts\n").await.unwrap();
            drop(process);
        };
        let (written, ()) = tokio::join!(copied(output, &[]), writes);
        assert!(written[1].contains("two, in parts"), "{written:?}");
    }

    #[tokio::test]
    async fn a_long_line_is_cut_and_hides_a_secret_at_the_cut() {
        let input = format!("{}super:secret{}\nnext\n", "x".repeat(MAX_LINE - 5), "y".repeat(1 << 20));
        let written = copied(input.as_bytes(), &["super:secret"]).await;
        assert_eq!(written.len(), 2);
        assert!(written[0].len() < MAX_LINE + 200 && !written[0].contains("super"), "{}", written[0].len());
        assert!(written[0].contains("bytes more)") && written[1].contains("next"));
    }
}
