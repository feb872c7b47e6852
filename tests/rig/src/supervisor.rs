//! The one process that starts a rig's components, restarts those that end, and ends them all.
//!
//! It has a single thread on purpose: the kernel ties the parent-death signal of a child to the thread that forked it.
//! So the death of the supervisor, also by SIGKILL, is the death of every component.

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

/// Sent by whoever changed a component's file, so that nothing has to be polled for.
pub(crate) const REREAD: Signal = Signal::SIGUSR1;
/// What the starter writes when the rig shall live on without it.
pub(crate) const DETACH: u8 = b'd';

/// From SIGTERM to SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A component that ran for this long has the first pause again.
const SETTLED: Duration = Duration::from_secs(20);
/// A change whose signal was lost is seen after this.
const IDLE: Duration = Duration::from_secs(1);
const LOG_LIMIT: u64 = 32 << 20;

/// Runs the supervisor of a rig until it is told to end, or until its starter ends without having detached it.
pub(crate) fn supervise(layout: &Layout) -> Result<()> {
    // A session of its own: Ctrl-C in the starter's terminal must reach the starter alone. It fails only for a leader
    // of a process group, which a child of the starter is not.
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
    // Both are held until this process ends.
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
        // With nodes this is number 1 of a process namespace: the kernel ends everything with it, pods too, and at once.
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
        // A millisecond more, since poll rounds down: else it would spin for the last one.
        let wait = u16::try_from(wait.as_millis()).unwrap_or(1000).saturating_add(1);
        let told = match poll(&mut sources, PollTimeout::from(wait)) {
            Ok(_) => sources.get(1).and_then(PollFd::revents).is_some_and(|events| !events.is_empty()),
            Err(nix::Error::EINTR) => false,
            Err(e) => return Err(e).context("cannot wait for signals"),
        };
        if told && let Some(input) = &mut starter {
            let mut byte = [0];
            ending |= !matches!(input.read(&mut byte), Ok(1)) || byte != [DETACH];
            starter = None;
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            ending |= [Signal::SIGTERM as i32, Signal::SIGINT as i32].contains(&number);
        }
        // A rig whose folder was removed by hand can no longer be found by anybody.
        ending |= !layout.state().exists();
    }
}

struct Keeper<'a> {
    layout: &'a Layout,
    machines: &'a Machines,
    components: BTreeMap<String, Kept>,
    record: Record,
}

struct Kept {
    wanted: Component,
    process: Option<Process>,
    pause: Duration,
    not_before: Instant,
    starts: u32,
    since: i64,
    last_end: Option<String>,
}

struct Process {
    /// Its number for this process.
    pid: Pid,
    /// As others know it.
    identity: Identity,
    revision: u64,
    started: Instant,
    asked: Option<Instant>,
    killed: bool,
}

impl Keeper<'_> {
    fn is_empty(&self) -> bool {
        self.components.values().all(|kept| kept.process.is_none())
    }

    /// Brings the processes nearer to what shall be. Returns when there is something to do again.
    fn step(&mut self, ending: bool) -> Instant {
        self.reap();
        if !ending {
            self.reread();
        }
        let now = Instant::now();
        let mut next = now + IDLE;
        for kept in self.components.values_mut() {
            let wanted = kept.wanted.wanted && !ending;
            if let Some(process) = &mut kept.process {
                if wanted && process.revision == kept.wanted.revision {
                    continue;
                }
                let asked = if let Some(asked) = process.asked {
                    asked
                } else {
                    process.signal(Signal::SIGTERM);
                    process.asked = Some(now);
                    now
                };
                if now < asked + PATIENCE {
                    next = next.min(asked + PATIENCE);
                } else if !process.killed {
                    process.killed = true;
                    process.signal(Signal::SIGKILL);
                }
            } else if wanted && now >= kept.not_before {
                kept.start(self.layout, self.machines, now);
                if kept.process.is_none() {
                    next = next.min(kept.not_before);
                }
            } else if wanted {
                next = next.min(kept.not_before);
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
            let ended = self.components.values_mut().find(|kept| kept.process.as_ref().is_some_and(|p| p.pid == pid));
            if let Some(kept) = ended
                && let Some(process) = kept.process.take()
            {
                kept.last_end = Some(end);
                if process.asked.is_some() {
                    kept.pause = FIRST_PAUSE;
                    kept.not_before = Instant::now();
                } else {
                    kept.postpone(process.started.elapsed() > SETTLED);
                }
            }
        }
    }

    fn reread(&mut self) {
        // What cannot be read right now stays as it is, and is looked at again a second later.
        let all = match self.layout.components() {
            Ok(all) => all,
            Err(e) => return eprintln!("{e:#}"),
        };
        for (name, wanted) in all {
            match self.components.get_mut(&name) {
                Some(kept) => {
                    if kept.wanted != wanted {
                        // Somebody asks for it now: what it did before no longer counts.
                        kept.pause = FIRST_PAUSE;
                        kept.not_before = Instant::now();
                        kept.wanted = wanted;
                    }
                }
                None => {
                    self.components.insert(
                        name,
                        Kept {
                            wanted,
                            process: None,
                            pause: FIRST_PAUSE,
                            not_before: Instant::now(),
                            starts: 0,
                            since: 0,
                            last_end: None,
                        },
                    );
                }
            }
        }
    }

    fn publish(&mut self) {
        let components = self
            .components
            .iter()
            .map(|(name, kept)| {
                let activity = Activity {
                    process: kept.process.as_ref().map(|p| p.identity.clone()),
                    revision: kept.process.as_ref().map_or(0, |p| p.revision),
                    wanted: kept.wanted.wanted,
                    starts: kept.starts,
                    since: kept.since,
                    last_end: kept.last_end.clone(),
                };
                (name.clone(), activity)
            })
            .collect();
        if components == self.record.components {
            return;
        }
        self.record.components = components;
        // If it fails, the components still run and end with this process; only `status` shows old news.
        if let Err(e) = write_json(&self.layout.record(), &self.record) {
            eprintln!("{e:#}");
        }
    }

    /// Keeps a component's log below a limit: the older part goes to `NAME.log.old`. The component appends, so it goes
    /// on at the start of the emptied file.
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

impl Kept {
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
                    asked: None,
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
    /// It is a child that is not reaped yet, so the number is its own.
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
        // Everything is told by flags: a kubeconfig of the person who starts the rig must have no effect.
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
    // Not reaped before `reap`, so the number is its own even if it has ended already; then its birth is not to be read.
    let identity =
        Identity::of_child(pid).with_context(|| format!("{program} ended at once: see {}", path.display()))?;
    Ok((Pid::from_raw(pid), identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            wanted: Component { name: "x".into(), argv: vec![], wanted: true, revision: 1, place: None },
            process: None,
            pause: FIRST_PAUSE,
            not_before: Instant::now(),
            starts: 0,
            since: 0,
            last_end: None,
        }
    }

    #[test]
    fn the_pause_before_a_restart_grows_and_is_short_again_after_a_quiet_time() {
        let mut kept = kept();
        kept.postpone(false);
        assert_eq!(kept.pause, 2 * FIRST_PAUSE);
        for _ in 0..10 {
            kept.postpone(false);
        }
        assert_eq!(kept.pause, LONGEST_PAUSE);
        kept.postpone(true);
        assert_eq!(kept.pause, 2 * FIRST_PAUSE);
    }
}
