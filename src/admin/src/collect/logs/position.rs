//! How far a log has been read, by the time that the cluster gives to each line. Everything here is pure.

use std::cmp::Ordering;

use k8s_openapi::jiff::Timestamp;

/// How far a log has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Time of the last line.
    last: Option<Timestamp>,
    /// Lines of that time.
    count: usize,
    /// Lines of that time that come a second time, if the log is read again.
    repeated: Option<usize>,
}

/// A line with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timed<'l> {
    time: Option<Timestamp>,
    /// The line without its time.
    pub(super) text: &'l [u8],
}

impl<'l> Timed<'l> {
    /// A line of a log with times. One without a time is text alone.
    pub(super) fn of(line: &'l [u8]) -> Self {
        let space = line.iter().position(|byte| *byte == b' ');
        let parts = space.and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)));
        let time = parts.and_then(|(time, _)| std::str::from_utf8(time).ok()?.parse().ok());
        Self { time, text: parts.filter(|_| time.is_some()).map_or(line, |(_, text)| text) }
    }
}

impl Position {
    /// The time from which the log goes on: the lines of this time come again. `None` if no line has been read.
    pub(super) const fn since(&self) -> Option<Timestamp> {
        self.last
    }

    /// The position for reading the log again, from that time on.
    #[must_use]
    pub(super) const fn again(mut self) -> Self {
        self.repeated = if self.last.is_some() { Some(self.count) } else { None };
        self
    }

    /// Notes a line. False if it has been read before.
    pub(super) fn is_new(&mut self, line: Timed<'_>) -> bool {
        let Some(time) = line.time else { return true };
        if let (Some(last), Some(repeated)) = (self.last, self.repeated) {
            match time.cmp(&last) {
                // API servers may round the time down.
                Ordering::Less => return false,
                Ordering::Equal if repeated > 0 => {
                    self.repeated = Some(repeated - 1);
                    return false;
                }
                Ordering::Equal => {}
                Ordering::Greater => self.repeated = None,
            }
        }
        self.count = if self.last == Some(time) { self.count + 1 } else { 1 };
        self.last = Some(time);
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The lines of a log that are new.
    fn new<'l>(position: &mut Position, lines: &[&'l str]) -> Vec<&'l str> {
        let lines = lines.iter().map(|line| Timed::of(line.as_bytes()));
        lines.filter(|line| position.is_new(*line)).map(|line| std::str::from_utf8(line.text).unwrap()).collect()
    }

    #[test]
    fn a_line_and_its_time() {
        let line = Timed::of(b"2026-01-01T00:00:00.100000000Z a b\n");
        assert_eq!((line.time, line.text), (Some("2026-01-01T00:00:00.1Z".parse().unwrap()), &b"a b\n"[..]));
        assert_eq!(Timed::of(b"no time\n"), Timed { time: None, text: b"no time\n" });
        assert_eq!(Timed::of(b"\xff\n").text, b"\xff\n");
        assert_eq!(Timed::of(b"2026-01-01T00:00:00Z \n").text, b"\n");
    }

    /// Several lines may have one time, and the last of them may come after the reader was gone.
    #[test]
    fn a_log_that_is_read_again_has_each_line_once() {
        let (mut position, t) = (Position::default(), "2026-01-01T00:00:0");
        let line = |time: &str, text: &str| format!("{t}{time}Z {text}");
        let first = [line("1.5", "a"), line("2", "b"), line("2", "c")];
        let second =
            [line("1.5", "a"), line("2", "b"), line("2", "c"), line("2", "d"), line("2.1", "e"), line("2", "f")];
        let texts = |lines: &[String], position: &mut Position| {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            new(position, &lines).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(texts(&first, &mut position), ["a", "b", "c"]);
        assert_eq!(position.since(), Some(format!("{t}2Z").parse().unwrap()));
        position = position.again();
        // The clock of a node may go back: later lines are new whatever their time.
        assert_eq!(texts(&second, &mut position), ["d", "e", "f"]);
        position = position.again();
        assert_eq!(texts(&[line("2", "f"), line("3", "g")], &mut position), ["g"]);
    }

    #[test]
    fn a_log_without_a_line_begins_again() {
        let position = Position::default().again();
        assert_eq!((position.since(), position.repeated), (None, None));
    }
}
