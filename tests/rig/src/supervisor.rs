//! The process that starts the components of a rig, restarts them, and ends them.
//!
//! It has a single thread on purpose: the kernel ties the parent-death signal of a child to the thread that forked it.
//! So every component dies with the supervisor, even after SIGKILL.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};

use crate::identity::Identity;
use crate::layout::{Activity, Component, Layout, Record, cache, write_json};
use crate::lifeline::end_with_parent;
use crate::nodes;
use crate::nodes::place::Machines;
use crate::ports;

/// Makes the supervisor read the components' files again. Every process that changes one sends it.
pub(crate) const REREAD: Signal = Signal::SIGUSR1;
/// The starter writes it to detach the rig.
pub(crate) const DETACH: u8 = b'd';

/// From SIGTERM to SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// After this time of running, the pause before the next restart is the first one again.
const SETTLED: Duration = Duration::from_secs(20);
/// The longest time between two reads of the components' files, in case a signal is lost.
const IDLE: Duration = Duration::from_secs(1);
const LOG_LIMIT: u64 = 32 << 20;

/// Runs until SIGTERM or SIGINT, or until the starter ends without detaching the rig.
pub(crate) fn supervise(layout: &Layout) -> Result<()> {
    // Ctrl-C in the starter's terminal must reach the starter alone. The call fails only in the leader of a process
    // group, and this process is none.
    let _ = setsid();
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD, REREAD] {
        mask.add(signal);
    }
    mask.thread_block().context("cannot block signals")?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("cannot receive signals")?;

    let claim = ports::claim(&cache()?.join("ports"), &layout.dir)?;
    let state = layout.read_state()?.context("no rig there: `rig up` starts the supervisor")?;
    // This process holds both until it ends.
    let (machines, _machine_claim) = nodes::open(layout, &state)?;
    let mut keeper = Keeper {
        layout,
        machines: &machines,
        components: BTreeMap::new(),
        record: Record {
            supervisor: Identity::of_this_process()?,
            base_port: claim.ports.base,
            components: BTreeMap::new(),
            places: machines.doors(),
        },
    };
    write_json(&layout.record(), &keeper.record)?;

    let mut starter = Some(stdin());
    let mut ending = false;
    let mut logs_seen = Instant::now();
    loop {
        let deadline = keeper.step(ending);
        // With nodes, this is process 1 of a process namespace: with it, the kernel ends all components and pods at once.
        if ending && (keeper.is_empty() || state.nodes.is_some()) {
            return Ok(());
        }
        if logs_seen.elapsed() > 10 * IDLE {
            logs_seen = Instant::now();
            keeper.bound_logs();
        }

        let mut sources = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if let Some(input) = &starter {
            sources.push(PollFd::new(input.as_fd(), PollFlags::POLLIN));
        }
        let wait = deadline.saturating_duration_since(Instant::now()).min(IDLE);
        // poll rounds down, and would spin during the last millisecond.
        let wait = u16::try_from(wait.as_millis()).unwrap_or(1000).saturating_add(1);
        let readable = match poll(&mut sources, PollTimeout::from(wait)) {
            Ok(_) => sources.get(1).and_then(PollFd::revents).is_some_and(|events| !events.is_empty()),
            Err(nix::Error::EINTR) => false,
            Err(e) => return Err(e).context("cannot wait for signals"),
        };
        if readable && let Some(input) = &mut starter {
            let mut byte = [0];
            ending |= !matches!(input.read(&mut byte), Ok(1)) || byte != [DETACH];
            starter = None;
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            ending |= [Signal::SIGTERM as i32, Signal::SIGINT as i32].contains(&number);
        }
        // No command finds a rig whose folder was removed by hand.
        ending |= !layout.state().exists();
    }
}

struct Keeper<'a> {
    layout: &'a Layout,
    machines: &'a Machines,
    components: BTreeMap<String, Managed>,
    record: Record,
}

struct Managed {
    wanted: Component,
    process: Option<Process>,
    pause: Duration,
    not_before: Instant,
    starts: u32,
    since: i64,
    last_end: Option<String>,
}

struct Process {
    /// The process number as this process sees it.
    pid: Pid,
    /// The process number as other processes see it.
    identity: Identity,
    revision: u64,
    started: Instant,
    asked_to_end: Option<Instant>,
    killed: bool,
}

impl Keeper<'_> {
    fn is_empty(&self) -> bool {
        self.components.values().all(|managed| managed.process.is_none())
    }

    /// Starts, asks to end, and kills processes as wanted. Returns the time of the next step.
    fn step(&mut self, ending: bool) -> Instant {
        self.reap();
        if !ending {
            self.reread();
        }
        let now = Instant::now();
        let mut next = now + IDLE;
        for managed in self.components.values_mut() {
            let wanted = managed.wanted.wanted && !ending;
            if let Some(process) = &mut managed.process {
                if wanted && process.revision == managed.wanted.revision {
                    continue;
                }
                let asked = if let Some(asked) = process.asked_to_end {
                    asked
                } else {
                    process.signal(Signal::SIGTERM);
                    process.asked_to_end = Some(now);
                    now
                };
                if now < asked + PATIENCE {
                    next = next.min(asked + PATIENCE);
                } else if !process.killed {
                    process.killed = true;
                    process.signal(Signal::SIGKILL);
                }
            } else if wanted && now >= managed.not_before {
                managed.start(self.layout, self.machines, now);
                if managed.process.is_none() {
                    next = next.min(managed.not_before);
                }
            } else if wanted {
                next = next.min(managed.not_before);
            }
        }
        self.publish();
        next
    }

    fn reap(&mut self) {
        loop {
            let (pid, end) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, format!("exit code {code}")),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("{signal}")),
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            let ended =
                self.components.values_mut().find(|managed| managed.process.as_ref().is_some_and(|p| p.pid == pid));
            if let Some(managed) = ended
                && let Some(process) = managed.process.take()
            {
                managed.last_end = Some(end);
                if process.asked_to_end.is_some() {
                    managed.pause = FIRST_PAUSE;
                    managed.not_before = Instant::now();
                } else {
                    managed.postpone(process.started.elapsed() > SETTLED);
                }
            }
        }
    }

    fn reread(&mut self) {
        // On an error, all components stay as they are; the next read is a second later.
        let all = match self.layout.components() {
            Ok(all) => all,
            Err(e) => return eprintln!("{e:#}"),
        };
        for (name, wanted) in all {
            match self.components.get_mut(&name) {
                Some(managed) => {
                    if managed.wanted != wanted {
                        // A command has just changed it, so it starts at once.
                        managed.pause = FIRST_PAUSE;
                        managed.not_before = Instant::now();
                        managed.wanted = wanted;
                    }
                }
                None => {
                    self.components.insert(name, Managed::new(wanted));
                }
            }
        }
    }

    fn publish(&mut self) {
        let components = self
            .components
            .iter()
            .map(|(name, managed)| {
                let activity = Activity {
                    process: managed.process.as_ref().map(|p| p.identity.clone()),
                    revision: managed.process.as_ref().map_or(0, |p| p.revision),
                    wanted: managed.wanted.wanted,
                    starts: managed.starts,
                    since: managed.since,
                    last_end: managed.last_end.clone(),
                };
                (name.clone(), activity)
            })
            .collect();
        if components == self.record.components {
            return;
        }
        self.record.components = components;
        // On an error, only `rig status` shows an old state.
        if let Err(e) = write_json(&self.layout.record(), &self.record) {
            eprintln!("{e:#}");
        }
    }

    /// Limits each log: the older part goes to `NAME.log.old`. The component opened the file for appending, so it
    /// continues at the start of the emptied file.
    fn bound_logs(&self) {
        for name in self.components.keys() {
            let path = self.layout.log(name);
            if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_LIMIT) {
                let _ = fs::copy(&path, path.with_extension("log.old"));
                let _ = File::options().write(true).open(&path).and_then(|log| log.set_len(0));
            }
        }
    }
}

impl Managed {
    fn new(wanted: Component) -> Self {
        Self {
            wanted,
            process: None,
            pause: FIRST_PAUSE,
            not_before: Instant::now(),
            starts: 0,
            since: 0,
            last_end: None,
        }
    }

    fn postpone(&mut self, settled: bool) {
        if settled {
            self.pause = FIRST_PAUSE;
        }
        self.not_before = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn start(&mut self, layout: &Layout, machines: &Machines, now: Instant) {
        match spawn(&self.wanted, layout, machines) {
            Ok((pid, identity)) => {
                self.process = Some(Process {
                    pid,
                    identity,
                    revision: self.wanted.revision,
                    started: now,
                    asked_to_end: None,
                    killed: false,
                });
                self.since = jiff::Timestamp::now().as_second();
                self.starts += 1;
            }
            Err(e) => {
                self.last_end = Some(format!("{e:#}"));
                self.postpone(false);
            }
        }
    }
}

impl Process {
    /// The child is not reaped yet, so the number cannot belong to another process.
    fn signal(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }
}

fn spawn(component: &Component, layout: &Layout, machines: &Machines) -> Result<(Pid, Identity)> {
    let (program, arguments) = component.argv.split_first().context("an empty command")?;
    let path = layout.log(&component.name);
    let log = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&layout.dir)
        // A kubeconfig of the user must have no effect.
        .env_remove("KUBECONFIG")
        .env("TMPDIR", if component.place.is_some() { PathBuf::from("/var/tmp") } else { layout.dir.join("tmp") })
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share a log file")?)
        .stderr(log)
        .process_group(0);
    if let Some(place) = &component.place {
        machines.enter(&mut command, place)?;
    }
    let child =
        end_with_parent(&mut command, Signal::SIGKILL).spawn().with_context(|| format!("cannot start {program}"))?;
    let pid = i32::try_from(child.id()).context("a process number is an i32")?;
    // The child is not reaped before `reap`, so the number is its own. If it has ended already, /proc shows no start time.
    let identity =
        Identity::of_child(pid).with_context(|| format!("{program} ended at once: see {}", path.display()))?;
    Ok((Pid::from_raw(pid), identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed() -> Managed {
        Managed::new(Component { name: "x".into(), argv: vec![], wanted: true, revision: 1, place: None })
    }

    #[test]
    fn the_pause_before_a_restart_grows_and_is_short_again_after_a_quiet_time() {
        let mut managed = managed();
        managed.postpone(false);
        assert_eq!(managed.pause, 2 * FIRST_PAUSE);
        for _ in 0..10 {
            managed.postpone(false);
        }
        assert_eq!(managed.pause, LONGEST_PAUSE);
        managed.postpone(true);
        assert_eq!(managed.pause, 2 * FIRST_PAUSE);
    }
}
