//! One line of a log, with its cluster and pod.

use k8s_openapi::jiff::SignedDuration;

/// Colours of clusters, which repeat: none of them marks an error.
const COLOURS: [&str; 5] = ["36", "35", "34", "33", "32"];

/// What stands before each line of a server.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    text: String,
    is_terminal: bool,
}

impl Prefix {
    /// The prefix of a pod. `index` is the number of its cluster, which chooses the colour.
    pub(super) fn new(cluster: &str, pod: &str, index: usize, coloured: bool) -> Self {
        let colour = COLOURS.get(index % COLOURS.len()).filter(|_| coloured);
        let text = colour
            .map_or_else(|| format!("{cluster}/{pod} "), |colour| format!("\u{1b}[{colour}m{cluster}/{pod}\u{1b}[0m "));
        Self { text, is_terminal: coloured }
    }

    /// A line with its prefix and one line break. Control characters of a log do not reach a terminal.
    pub(super) fn line(&self, line: &[u8]) -> String {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        let harmless = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
        let line: String = if self.is_terminal { line.chars().map(harmless).collect() } else { line.to_owned() };
        format!("{}{line}\n", self.text)
    }
}

/// Whole seconds of a duration such as `90s`, `10m` or `2h`.
///
/// # Errors
/// If the text is no duration of at least a second.
pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "write it as 90s, 10m or 2h".to_owned())?;
    if duration.as_secs() < 1 { Err("name at least one second, as 1s".to_owned()) } else { Ok(duration.as_secs()) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(false, b"one\r\n", "m1/zk-0 one\n")]
    #[case(false, b"\x1b[31mred", "m1/zk-0 \u{1b}[31mred\n")]
    #[case(true, b"\x1b]0;title\x07\tend\n", "\u{1b}[35mm1/zk-0\u{1b}[0m \u{fffd}]0;title\u{fffd}\tend\n")]
    #[case(false, b"\xff\n", "m1/zk-0 \u{fffd}\n")]
    fn a_line(#[case] coloured: bool, #[case] line: &[u8], #[case] expected: &str) {
        assert_eq!(Prefix::new("m1", "zk-0", 6, coloured).line(line), expected);
    }

    #[rstest]
    #[case("90s", Ok(90))]
    #[case("10m", Ok(600))]
    #[case("1h30m", Ok(5400))]
    #[case("0s", Err(()))]
    #[case("-5s", Err(()))]
    #[case("100ms", Err(()))]
    #[case("10", Err(()))]
    fn a_duration(#[case] text: &str, #[case] expected: Result<i64, ()>) {
        assert_eq!(seconds(text).map_err(drop), expected);
    }
}
