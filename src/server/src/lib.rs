//! `mczk server`: the parent process of `ZooKeeper`, in a server's pod.
//!
//! `lifecycle` is the loop of the process: `launch` starts `ZooKeeper`, `watch` watches it. `supervisor` holds their
//! shared state. `volume` is the data volume. What decides is in [`mczk_rules::server`]: how the server starts, the contents
//! of its files, the steps that the ensemble takes, and what the volume proves.
//!
//! `control` serves agents, other servers and probes: `report` describes the server, `reconfigure` and
//! `restart_lock` act on the ensemble through `session`. `output` copies the lines of `ZooKeeper` to the log.
//!
//! `preflight` stands for a server before the first one starts, to check the network.

// What is not reachable outside the crate is not `pub`, so rustc finds dead code.
#![warn(unreachable_pub)]

mod admin_server;
mod assigned_config;
mod bounded_line;
mod client_certificates;
pub mod control;
mod disk;
mod election_connections;
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
mod shared_answer;
mod shared_znodes;
mod superuser;
pub mod supervisor;
mod tls_clients;
mod transaction_log;
pub mod volume;
mod watch;
