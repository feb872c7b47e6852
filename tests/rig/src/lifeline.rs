//! Children that end with the process that started them, also if that one is killed.
#![allow(
    unsafe_code,
    reason = "std can set a parent-death signal only through pre_exec, which is unsafe: the closure runs between fork \
              and exec. It makes two system calls and touches no memory of the parent."
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// Lets the kernel send `signal` to the child when the **thread** that spawns it ends, by whatever cause. So spawn from
/// a thread that outlives the child.
pub(crate) fn end_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    let parent = getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: prctl(2) and getppid(2) are.
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(signal)?;
            // The parent may have ended before the line above: then nothing would ever be sent.
            if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        })
    }
}
