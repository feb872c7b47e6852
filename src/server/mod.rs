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

mod assigned_config;
mod atomic_file;
mod bounded_line;
mod client_certificates;
pub(crate) mod control;
mod disk;
pub mod dynamic_configuration;
pub mod files;
mod four_letter_words;
mod generation;
pub mod jvm;
mod launch;
mod lifecycle;
pub mod metrics;
mod output;
pub mod paths;
pub mod peers;
pub mod permitted_step;
pub(crate) mod preflight;
pub(crate) mod process;
mod program;
pub mod quorum_certificates;
mod reconfigure;
mod refusal;
mod report;
pub mod resolver;
mod restart_lock;
mod session;
mod shared_znodes;
pub mod start;
mod superuser;
pub(crate) mod supervisor;
mod transaction_log;
mod volume;
pub mod volume_age;
mod watch;
pub mod zoo_cfg;
mod zookeeper_log;

#[cfg(feature = "fuzzing")]
pub(crate) use volume::Volume;
