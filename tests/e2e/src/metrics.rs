//! Reads metrics from the plain HTTP port of the operator.

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Duration, timeout},
};

/// Gets a page.
///
/// # Errors
/// If there is no answer, or its status is not 200.
pub async fn get(port: u16, path: &str) -> Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        // In HTTP 1.0 an answer has no chunks.
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout(Duration::from_secs(5), ask).await.context("no answer in 5 s")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{}: {}", head.lines().next().unwrap_or_default(), body.trim());
    }
    if path == "/metrics" && !body.ends_with("# EOF\n") {
        bail!("the page is incomplete");
    }
    Ok(body.to_owned())
}

/// A histogram: upper bounds in seconds, and the number of values at or below each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// In ascending order. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Reads a histogram from a page of metrics.
    ///
    /// # Errors
    /// If the page does not have it.
    pub fn read(page: &str, name: &str) -> Result<Self> {
        let mut histogram = Self::default();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix(&format!("{name}_bucket{{le=\"")) {
                let (bound, count) = rest.split_once("\"}").context("not a bucket")?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
                histogram.buckets.push((bound, count.trim().parse()?));
            } else if let Some(sum) = line.strip_prefix(&format!("{name}_sum ")) {
                histogram.sum = sum.trim().parse()?;
            }
        }
        anyhow::ensure!(!histogram.buckets.is_empty(), "the page has no histogram {name}");
        Ok(histogram)
    }

    /// The values since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bound: f64| before.buckets.iter().find(|b| b.0.total_cmp(&bound).is_eq()).map_or(0, |b| b.1);
        Self {
            buckets: self.buckets.iter().map(|(bound, n)| (*bound, n.saturating_sub(earlier(*bound)))).collect(),
            sum: self.sum - before.sum,
        }
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |b| b.1)
    }

    /// The upper bound of the bucket that holds a quantile, in seconds, of `per_mille` thousandths.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> f64 {
        let rank = (self.count() * per_mille).div_ceil(1000);
        self.buckets.iter().find(|(_, n)| *n >= rank).map_or(f64::INFINITY, |b| b.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE t histogram\nt_sum 1.5\nt_count 4\nt_bucket{le=\"0.1\"} 3\nt_bucket{le=\"+Inf\"} 4\n";

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() -> Result<()> {
        let all = Histogram::read(PAGE, "t")?;
        assert_eq!(all.count(), 4);
        assert!((all.quantile(500) - 0.1).abs() < f64::EPSILON);
        assert!(all.quantile(990).is_infinite());
        assert_eq!(all.since(&all).count(), 0);
        assert!(Histogram::read(PAGE, "other").is_err());
        Ok(())
    }
}
