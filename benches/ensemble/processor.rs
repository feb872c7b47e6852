//! The processor time of what mczk runs in member clusters beside ZooKeeper. It is spent under load on either side, so the
//! ratios leave it out.

use std::{fs, path::Path, time::Instant};

use crate::statistics::as_number;

/// Ticks of a second in `/proc`: the same on all Linux systems.
const TICKS: f64 = 100.0;
/// What the command lines of agents and of parents of ZooKeeper have in them.
const COMMANDS: [&str; 2] = ["mczk\0server\0", "mczk\0agent\0"];

/// The time at a moment.
pub(crate) struct Processor {
    at: Instant,
    ticks: usize,
}

impl Processor {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), ticks: ticks() }
    }

    /// The share of one processor since then.
    pub(crate) fn share(&self) -> f64 {
        as_number(ticks().saturating_sub(self.ticks)) / TICKS / self.at.elapsed().as_secs_f64()
    }
}

/// The time of all processes in pods. One that ends meanwhile has none.
fn ticks() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| ticks_of(&process.path())).sum()
}

fn ticks_of(process: &Path) -> Option<usize> {
    let read = |file: &str| fs::read_to_string(process.join(file)).ok();
    let line = read("cmdline")?;
    let wanted = COMMANDS.iter().any(|command| line.contains(command)) && read("cgroup")?.contains("kubepods");
    wanted.then(|| used(&read("stat")?)).flatten()
}

/// The ticks in user mode and in the kernel.
fn used(stat: &str) -> Option<usize> {
    // The name before it may have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let [user, kernel] = fields.get(11..13)? else { return None };
    Some(user.parse::<usize>().ok()? + kernel.parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_time_count() {
        assert_eq!(used("7 (a ) b) S 1 7 7 0 -1 0 100 0 0 0 250 50 0 0 20 0 9 0"), Some(300));
        assert_eq!(used("7 (a) S"), None);
    }
}
