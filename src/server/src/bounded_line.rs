//! A line of bounded length, without secrets.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Most bytes of a line. The rest is read and dropped.
pub(super) const MAX_LINE: usize = 16 << 10;

/// A line of bounded length while it is read.
pub(super) struct Line {
    bytes: Vec<u8>,
    limit: usize,
    dropped: usize,
}

impl Line {
    /// An empty line. Of secrets at the cut, `longest_secret` bytes are read to recognize them.
    pub(super) const fn new(longest_secret: usize) -> Self {
        Self { bytes: Vec::new(), limit: MAX_LINE + longest_secret, dropped: 0 }
    }

    /// True if nothing was read.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Begins the next line.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.dropped = 0;
    }

    /// Reads up to the end of a line. Returns false at the end of the stream. A cancelled read loses nothing.
    pub(super) async fn read(&mut self, reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<bool> {
        loop {
            let available = reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
            let kept = part.len().min(self.limit.saturating_sub(self.bytes.len()));
            self.bytes.extend_from_slice(part.get(..kept).unwrap_or_default());
            self.dropped += part.len() - kept;
            let read = part.len() + usize::from(end.is_some());
            reader.consume(read);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The text without secrets and without white space at its end, cut at the longest length.
    pub(super) fn text(&self, secrets: &[String]) -> String {
        let text = redact(String::from_utf8_lossy(&self.bytes).trim_end(), secrets);
        if self.dropped == 0 && text.len() <= MAX_LINE {
            return text;
        }
        // The end of the buffer may hold the begin of a secret.
        let unsure = if self.dropped == 0 { 0 } else { self.limit - MAX_LINE };
        let longest = MAX_LINE.min(text.len().saturating_sub(unsure));
        let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let dropped = self.dropped + text.len() - end;
        format!("{}... ({dropped} bytes more)", text.get(..end).unwrap_or_default())
    }
}

fn redact(line: &str, secrets: &[String]) -> String {
    secrets.iter().fold(line.to_owned(), |line, secret| {
        if line.contains(secret.as_str()) { line.replace(secret.as_str(), "[redacted]") } else { line }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted() {
        let secrets = ["super:abc=".to_owned(), "pass".to_owned()];
        assert_eq!(redact("digest super:abc= of pass", &secrets), "digest [redacted] of [redacted]");
        assert_eq!(redact("nothing", &secrets), "nothing");
    }
}
