//! The newest part of a log, within a size. Everything here is pure.

/// Collects a log as it comes, and keeps its end: whatever its length, the memory is bounded.
#[derive(Debug)]
pub(super) struct Newest {
    limit: usize,
    bytes: Vec<u8>,
    left_out: usize,
}

impl Newest {
    /// Keeps at least the last `limit` bytes, and at most twice as many.
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), left_out: 0 }
    }

    /// Adds bytes at the end.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.limit.saturating_mul(2) {
            let cut = self.bytes.len() - self.limit;
            self.left_out += self.bytes.drain(..cut).filter(|byte| *byte == b'\n').count();
        }
    }

    /// The text, and the number of older lines that are left out.
    pub(super) fn text(&self) -> (String, usize) {
        (String::from_utf8_lossy(&self.bytes).into_owned(), self.left_out)
    }
}

/// The last `limit` bytes of a log, from the beginning of a line on, after a line that says how many older lines are
/// left out. `left_out` is the number of those that the text lacks already. Of a last line that is too long, the end
/// stays.
pub(super) fn newest(text: &str, left_out: usize, limit: usize) -> String {
    let cut = text.len().saturating_sub(limit);
    let start = (cut..=text.len()).find(|index| text.is_char_boundary(*index)).unwrap_or(text.len());
    let (before, rest) = text.split_at(start);
    // A text that lacks lines begins inside one.
    let begins_inside = if before.is_empty() { left_out > 0 } else { !before.ends_with('\n') };
    let next = rest.find('\n').map(|at| at + 1).filter(|at| begins_inside && *at < rest.len()).unwrap_or(0);
    let kept = rest.get(next..).unwrap_or_default();
    let dropped = text.get(..text.len() - kept.len()).unwrap_or_default();
    let lines = left_out + dropped.matches('\n').count();
    match (lines, begins_inside && next == 0) {
        (0, false) => kept.to_owned(),
        (_, false) => format!("[mczk: {lines} older lines are left out: raise --max-log-kibibytes]\n{kept}"),
        (_, true) => format!(
            "[mczk: {lines} older lines and the beginning of this one are left out: raise --max-log-kibibytes]\n{kept}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole("one\ntwo\nthree\n", 100, "one\ntwo\nthree\n")]
    #[case::inside_a_line(
        "one\ntwo\nthree\n",
        8,
        "[mczk: 2 older lines are left out: raise --max-log-kibibytes]\nthree\n"
    )]
    #[case::at_a_line("one\ntwo\nthree\n", 6, "[mczk: 2 older lines are left out: raise --max-log-kibibytes]\nthree\n")]
    #[case::a_long_last_line(
        "one\ntwöö\n",
        4,
        "[mczk: 1 older lines and the beginning of this one are left out: raise --max-log-kibibytes]\nö\n"
    )]
    #[case::no_line_break("one", 3, "one")]
    fn the_end_of_a_log(#[case] text: &str, #[case] limit: usize, #[case] expected: &str) {
        assert_eq!(newest(text, 0, limit), expected);
    }

    /// Long lines made the API server cut the newest ones.
    #[test]
    fn the_last_line_of_a_long_log_stays_and_older_ones_are_counted() {
        let mut log = Newest::new(1000);
        for number in 0..500 {
            log.push(format!("{number} {}\n", "x".repeat(90)).as_bytes());
        }
        assert!(log.bytes.len() <= 2000, "{}", log.bytes.len());
        let (text, left_out) = log.text();
        let end = newest(&text, left_out, 1000);
        let (head, lines) = end.split_once('\n').unwrap_or_default();
        let kept = lines.lines().count();
        assert!(
            lines.ends_with("x\n") && lines.lines().next_back().is_some_and(|line| line.starts_with("499 ")),
            "{lines}"
        );
        assert_eq!(head, format!("[mczk: {} older lines are left out: raise --max-log-kibibytes]", 500 - kept));
        assert!(kept >= 5, "{kept}");
    }
}
