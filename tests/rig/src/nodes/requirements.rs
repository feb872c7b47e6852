//! Checks what a rig with nodes needs of the machine, before it starts anything.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::nodes::images;

/// The requirements of the Makefile: the set `nodes` is that of a rig with nodes.
const TABLE: &str = include_str!("../../../requirements.txt");
/// Each node has its own folders there.
const COVERED: [&str; 2] = ["/var", "/run"];

/// A row of the table: `need SET PROBE INSTALLER PACKAGE...`.
#[derive(Debug)]
struct Requirement {
    probe: &'static str,
    installer: &'static str,
    packages: String,
}

fn requirements() -> impl Iterator<Item = Requirement> {
    TABLE.lines().filter_map(|line| {
        let mut columns = line.strip_prefix("need nodes ")?.split_whitespace();
        let (probe, installer) = (columns.next()?, columns.next()?);
        Some(Requirement { probe, installer, packages: columns.collect::<Vec<_>>().join(" ") })
    })
}

/// Fails with all missing requirements.
pub(crate) fn check(folders: &[&Path]) -> Result<()> {
    let mut lacks = vec![];
    if !nix::unistd::geteuid().is_root() {
        lacks.push("root is needed, for namespaces, mounts and control groups: run it with sudo -E".to_owned());
    }
    lacks.extend(requirements().filter(|requirement| !is_met(requirement)).map(
        |Requirement { probe, installer, packages }| match installer {
            "apt" => format!("{probe} is missing: install the package {packages}, or run `make prerequisites-nodes`"),
            _ => format!("{probe} is missing: run `make prerequisites-nodes`"),
        },
    ));
    lacks.extend(covered(folders));
    if lacks.is_empty() {
        return Ok(());
    }
    bail!("this machine cannot run a rig with nodes:\n- {}", lacks.join("\n- "))
}

fn is_met(requirement: &Requirement) -> bool {
    match requirement.probe {
        "kernel:tun" => Path::new("/dev/net/tun").exists(),
        "kernel:loop" => Path::new("/dev/loop-control").exists(),
        system @ ("kernel:overlay" | "kernel:xfs") => {
            let name = system.trim_start_matches("kernel:");
            fs::read_to_string("/proc/filesystems").unwrap_or_default().contains(&format!("\t{name}\n"))
        }
        file if file.starts_with('/') => Path::new(file).exists(),
        program => images::program(program).is_ok(),
    }
}

fn covered(folders: &[&Path]) -> Vec<String> {
    folders
        .iter()
        .filter(|folder| COVERED.iter().any(|top| folder.starts_with(top)))
        .map(|folder| {
            format!(
                "{} lies below {}, where each node has its own folder: use another (--dir, MCZK_CACHE, CARGO_TARGET_DIR)",
                folder.display(),
                COVERED.join(" or ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::containerd::PLUGINS;

    #[test]
    fn folders_that_a_node_covers_are_refused() {
        let lacks = covered(&[Path::new("/var/tmp/x"), Path::new("/home/variant"), Path::new("/run")]);
        assert_eq!(lacks.len(), 2);
        assert!(lacks.iter().all(|lack| lack.contains("--dir")));
    }

    #[test]
    fn the_table_names_programs_plugins_and_modules() {
        let all: Vec<_> = requirements().collect();
        for probe in ["containerd", "nft", "kernel:tun", "kernel:overlay", &format!("{PLUGINS}/ptp")] {
            assert!(all.iter().any(|requirement| requirement.probe == probe), "{probe} is not in the table");
        }
        let installers = ["apt", "modprobe"];
        assert!(all.iter().all(|requirement| installers.contains(&requirement.installer)));
        assert!(all.iter().all(|requirement| (requirement.installer == "apt") != requirement.packages.is_empty()));
    }
}
