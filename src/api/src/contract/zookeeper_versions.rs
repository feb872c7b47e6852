//! Versions of ZooKeeper: those that are known to lose acknowledged writes, and those that mczk cannot start.

/// Version, and the issue of ZooKeeper that describes the loss. 3.9.4 has none of them.
const UNSAFE: [(&str, &str); 3] =
    [("3.9.0", "ZOOKEEPER-4785"), ("3.9.1", "ZOOKEEPER-4785"), ("3.9.3", "ZOOKEEPER-4925")];

/// The newest version with which mczk has a run: messages name it.
pub const NEWEST: &str = "3.9.5";

/// The versions with which mczk has a run. `docs/reference/versions.md` has the whole table.
pub const TESTED: [&str; 2] = ["3.9.4", NEWEST];

/// The oldest major and minor version whose settings and files mczk knows.
const OLDEST: (u32, u32) = (3, 9);

/// The issue of ZooKeeper that makes a version lose acknowledged writes, if one is known.
#[must_use]
pub fn known_loss(version: &str) -> Option<&'static str> {
    UNSAFE.iter().find(|(unsafe_version, _)| *unsafe_version == version).map(|(_, issue)| *issue)
}

/// The number of a version as ZooKeeper writes it: `3.9.4-7246445, built on ...` is `3.9.4`.
#[must_use]
pub fn number(text: &str) -> String {
    text.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

/// Why mczk does not start the ZooKeeper of an image, by the names of its jars. An image whose jars name no version starts.
#[must_use]
pub fn refusal(jars: &[String]) -> Option<String> {
    let stems = || jars.iter().filter_map(|jar| jar.strip_prefix("zookeeper-")?.strip_suffix(".jar"));
    let former = stems().map(number).find(|version| {
        let mut parts = version.split('.').map(str::parse::<u32>);
        matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST)
    });
    if let Some(former) = former {
        let (major, minor) = OLDEST;
        return Some(format!(
            "the image has ZooKeeper {former}, and mczk needs {major}.{minor} or later: change the image to {NEWEST} or later"
        ));
    }
    // Without it ZooKeeper serves, and has no admin server. No agent would ever see it follow. A jar with another name may hold
    // everything.
    let is_official = stems().any(|stem| !stem.is_empty() && number(stem) == stem);
    (is_official && !jars.iter().any(|jar| jar.contains("jetty"))).then(|| {
        "the image has ZooKeeper without the jars of Jetty, which its admin server needs, and mczk asks that: keep all jars \
         of the official image"
            .to_owned()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_loses_writes_is_known_by_its_number() {
        assert_eq!(number("3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024-10-17 23:21 UTC"), "3.9.3");
        assert_eq!(known_loss("3.9.3"), Some("ZOOKEEPER-4925"));
        assert_eq!(known_loss(NEWEST), None);
    }

    #[test]
    fn the_table_of_the_documentation_has_the_tested_versions() {
        let table = include_str!("../../../../docs/reference/versions.md");
        assert!(table.contains(&format!("| {} ", TESTED.join(" and "))), "{table}");
    }

    #[test]
    fn a_version_before_3_9_is_refused_by_the_name_of_its_jar() {
        let refused = |jars: &[&str]| refusal(&jars.iter().map(|jar| (*jar).to_owned()).collect::<Vec<_>>());
        for jar in ["zookeeper-3.8.4.jar", "zookeeper-3.4.14.jar", "zookeeper-3.8.4-vendor.jar", "zookeeper-2.9.jar"] {
            let message = refused(&["jute.jar", "zookeeper-jute-3.9.4.jar", jar]).unwrap();
            assert!(message.contains("change the image to 3.9.5 or later"), "{message}");
        }
        for jar in
            ["zookeeper-3.9.0.jar", "zookeeper-3.10.1.jar", "zookeeper-4.0.0.jar", "zookeeper.jar", "zookeeper-x.jar"]
        {
            assert_eq!(refused(&["zookeeper-jute-3.8.4.jar", "jetty-server-9.4.58.v20250814.jar", jar]), None);
        }
        for jar in ["zookeeper.jar", "zookeeper-3.9.5-fat.jar", "zookeeper-jute-3.9.5.jar"] {
            assert_eq!(refused(&[jar]), None, "it may hold everything");
        }
        let message = refused(&["zookeeper-3.9.5.jar", "netty-handler-4.1.jar"]).unwrap();
        assert!(message.contains("without the jars of Jetty"), "{message}");
    }
}
