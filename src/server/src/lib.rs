//! `mczk server`: the parent process of `ZooKeeper`, in a server's pod.
//!
//! `lifecycle` is the loop of the process: `launch` starts `ZooKeeper`, `watch` watches it. `supervisor` holds their
//! shared state. `start` decides how the server starts and is pure, as are the contents of its files: `zoo_cfg`,
//! `dynamic_configuration`, `jvm`. `permitted_step` is pure too: which membership steps the ensemble takes. `volume` is the
//! data volume. `volume_age` tells an old copy of it, and `files` what its snapshots and logs prove; both are pure.
//!
//! `control` serves agents, other servers and probes: `report` describes the server, `reconfigure` and
//! `restart_lock` act on the ensemble through `session`.
//! `output` copies the lines of `ZooKeeper` to the log; `zookeeper_log` makes events of them and is pure.
//!
//! `preflight` stands for a server before the first one starts, to check the network.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

mod assigned_config;
mod atomic_file;
mod bounded_line;
mod client_certificates;
pub mod control;
mod disk;
mod four_letter_words;
mod generation;
mod launch;
mod lifecycle;
pub mod metrics;
#[cfg(test)]
#[path = "../../../tests/fixtures/newer_list.rs"]
mod newer_list;
mod output;
pub mod peers;
pub mod preflight;
pub mod process;
mod program;
pub mod quorum_certificates;
mod reconfigure;
mod refusal;
mod report;
pub mod resolver;
mod restart_lock;
mod session;
mod shared_znodes;
mod superuser;
pub mod supervisor;
mod transaction_log;
pub mod volume;
mod watch;
