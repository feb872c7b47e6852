//! Faults of the network: which pairs of clusters are cut, and how late packets are.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use rig::Rig;

/// The cluster in which Karmada runs.
const HOST: &str = "host";

/// The faults that last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Clusters that the other member clusters do not reach.
    pub servers: BTreeSet<String>,
    /// Clusters that Karmada does not reach.
    pub karmada: BTreeSet<String>,
    /// Milliseconds that a packet takes between two member clusters, each way.
    pub delay: u32,
}

/// What is wrong between two clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    cut: bool,
    delay: u32,
}

impl Faults {
    /// What is wrong between each two clusters. Faults overlap: a pair is cut until neither of them is cut off.
    fn lines(&self, clusters: &[String]) -> BTreeMap<(String, String), Line> {
        let mut lines = BTreeMap::new();
        for (nth, a) in clusters.iter().enumerate() {
            let cut = self.karmada.contains(a);
            lines.insert((HOST.to_owned(), a.clone()), Line { cut, delay: 0 });
            for b in clusters.iter().skip(nth + 1) {
                let cut = self.servers.contains(a) || self.servers.contains(b);
                lines.insert((a.clone(), b.clone()), Line { cut, delay: self.delay });
            }
        }
        lines
    }
}

/// The network of a rig, with the faults that the rig applies.
#[derive(Debug, Default)]
pub struct Network {
    faults: Faults,
    applied: BTreeMap<(String, String), Line>,
}

impl Network {
    /// Changes the faults, and applies the difference.
    ///
    /// # Errors
    /// If the rig does not apply it. The next change tries again.
    pub async fn change(&mut self, rig: &Rig, clusters: &[String], edit: impl FnOnce(&mut Faults)) -> Result<()> {
        edit(&mut self.faults);
        for (pair, wanted) in self.faults.lines(clusters) {
            let (a, b) = (pair.0.as_str(), pair.1.as_str());
            let now = self.applied.get(&pair).copied().unwrap_or_default();
            if now.cut != wanted.cut {
                if wanted.cut { rig.cut(a, Some(b)).await? } else { rig.heal(Some(a), Some(b)).await? }
            }
            if now.delay != wanted.delay {
                rig.delay(a, b, f64::from(wanted.delay)).await?;
            }
            self.applied.insert(pair, wanted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_cut_until_neither_is_cut_off() {
        let clusters = ["m1", "m2", "m3"].map(str::to_owned);
        let cut = |servers: &[&str], karmada: &[&str]| {
            let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let faults = Faults { servers: set(servers), karmada: set(karmada), delay: 0 };
            let lines = faults.lines(&clusters).into_iter().filter(|(_, line)| line.cut);
            lines.map(|((a, b), _)| format!("{a} {b}")).collect::<Vec<_>>()
        };
        assert_eq!(cut(&["m1", "m2"], &[]), ["m1 m2", "m1 m3", "m2 m3"]);
        assert_eq!(cut(&["m2"], &[]), ["m1 m2", "m2 m3"]);
        assert_eq!(cut(&[], &["m3"]), ["host m3"]);
        assert!(cut(&[], &[]).is_empty());
    }

    #[test]
    fn servers_are_late_and_karmada_is_not() {
        let faults = Faults { delay: 50, ..Faults::default() };
        let late: Vec<_> =
            faults.lines(&["m1", "m2"].map(str::to_owned)).into_iter().filter(|(_, l)| l.delay > 0).collect();
        assert_eq!(late.len(), 1);
    }
}
