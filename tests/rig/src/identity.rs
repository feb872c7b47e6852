//! Identifies a process beyond its number, which the kernel reuses.

use std::fs;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process: its number, its start time, and the boot of the machine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks from boot to the start of the process.
    birth: u64,
    boot: String,
}

impl Identity {
    /// The process with this number. None if there is none, or if it is a zombie.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let birth = birth(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Self { pid, birth, boot: boot()? })
    }

    pub(crate) fn of_this_process() -> Result<Self> {
        own_number().and_then(Self::of).context("/proc does not show this process: mount /proc")
    }

    /// A child that is not reaped yet, by its number in the process namespace of this process. /proc may belong to the
    /// outer namespace, with another number; the identity holds the outer number.
    pub(crate) fn of_child(number: i32) -> Option<Self> {
        if own_number()? == nix::unistd::getpid().as_raw() {
            return Self::of(number);
        }
        fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .find(|pid| {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                is_child(&status, own_number(), number)
            })
            .and_then(Self::of)
    }

    pub(crate) fn lives(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Sends a signal, unless the process has ended. Returns whether it was sent.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.lives() && kill(Pid::from_raw(self.pid), signal).is_ok()
    }
}

/// The number of this process in /proc.
fn own_number() -> Option<i32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// True if a `/proc/PID/status` belongs to a child of `parent` with this number in its innermost process namespace.
fn is_child(status: &str, parent: Option<i32>, number: i32) -> bool {
    let last = |name: &str| -> Option<i32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next_back()?.parse().ok()
    };
    parent.is_some() && last("PPid:") == parent && last("NSpid:") == Some(number)
}

/// The start time in a line of `/proc/PID/stat`. None for a zombie.
fn birth(stat: &str) -> Option<u64> {
    // The name of the command is in parentheses, and may contain parentheses.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(words.next()?, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let rest = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 4711 19";
        assert_eq!(birth(&format!("7 (a) b (c) S {rest}")), Some(4711));
        assert_eq!(birth(&format!("7 (a) Z {rest}")), None);
        assert_eq!(birth("7 (a"), None);
    }

    #[test]
    fn a_child_is_found_by_its_number_in_the_inner_namespace() {
        let status = "Name:\tx\nPid:\t4711\nPPid:\t4700\nNSpid:\t4711\t12\n";
        assert!(is_child(status, Some(4700), 12));
        assert!(!is_child(status, Some(4700), 4711));
        assert!(!is_child(status, Some(1), 12));
        assert!(!is_child("", None, 12));
    }

    #[test]
    fn only_the_very_same_process_is_signalled() -> Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        let pid = i32::try_from(child.id())?;
        let real = Identity::of(pid).context("the child lives")?;
        assert!(real.lives());

        let earlier = Identity { birth: real.birth - 1, ..real.clone() };
        assert!(!earlier.signal(Signal::SIGKILL));
        let other_boot = Identity { boot: "another".into(), ..real.clone() };
        assert!(!other_boot.signal(Signal::SIGKILL));
        assert!(real.lives());

        assert!(real.signal(Signal::SIGKILL));
        while real.lives() {
            std::thread::yield_now();
        }
        // It is a zombie: its number is still taken.
        assert!(fs::exists(format!("/proc/{pid}"))?);
        child.wait()?;
        Ok(())
    }
}
