//! What `mczk server` decides, and the contents of the files that it writes.
//!
//! `start` decides how a server starts. `permitted_step` decides which membership steps the ensemble takes, and `volume_age`
//! whether the data volume is an old copy, by what its `files` prove. The contents of files are `zoo_cfg`, `dynamic_configuration` and `jvm`;
//! `credentials` finds what no message may quote, and `zookeeper_log` makes events of the lines of `ZooKeeper`.
//! `short_count` measures for how long a leader has missed voters.
//! `election_connections` finds connections that the network has forgotten.

pub mod credentials;
pub mod dynamic_configuration;
pub mod election_connections;
pub mod files;
pub mod jvm;
pub mod paths;
pub mod permitted_step;
pub mod short_count;
pub mod start;
pub mod volume_age;
pub mod zoo_cfg;
pub mod zookeeper_log;
