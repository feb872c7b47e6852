//! Resolves names without the C library, because a static program does not have its resolver.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hickory_resolver::{ResolverBuilder, TokioResolver};
use tokio::time::timeout;

/// Time limit of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Source of addresses.
#[derive(Clone, Debug)]
pub enum Resolver {
    /// The pod's `resolv.conf` and `hosts`.
    System,
    /// A file of addresses and names, for tests. The Java virtual machine gets the same file.
    File(PathBuf),
}

impl Resolver {
    /// Resolves a name.
    ///
    /// # Errors
    /// If the name has no address, or if no name server answers.
    pub async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let addresses = match self {
            Self::File(path) => in_file(&tokio::fs::read_to_string(path).await?, name),
            Self::System => timeout(LOOKUP_TIMEOUT, lookup(name)).await.map_err(|_| io::ErrorKind::TimedOut)??,
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address")));
        }
        Ok(addresses)
    }
}

/// Creates a resolver for each lookup: it reads the current files of the system, and it caches no answer, not even a
/// negative one.
async fn lookup(name: &str) -> io::Result<Vec<IpAddr>> {
    let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build).map_err(io::Error::other)?;
    let addresses = resolver.lookup_ip(name).await.map_err(io::Error::other)?;
    Ok(addresses.iter().collect())
}

fn in_file(text: &str, name: &str) -> Vec<IpAddr> {
    let address_on = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    };
    text.lines().filter_map(address_on).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_addresses() {
        let text = "# a comment\n127.0.1.1 a.example A\n127.0.1.2\tb.example # a.example\nnonsense a.example\n";
        assert_eq!(
            in_file(text, "a.example"),
            ["127.0.1.1".parse::<IpAddr>().ok()].into_iter().flatten().collect::<Vec<_>>()
        );
        assert!(in_file(text, "c.example").is_empty());
    }
}
