//! `mczk` on a real Karmada federation: scenarios, stories, demonstrations and the benchmark of transitions.
//!
//! The rig starts the federation. `mczk` runs as users run it: `mczk certs`, `mczk register`, `mczk operator`. In scenarios,
//! member clusters have API servers but no nodes, and [`agent`] runs the real agent on simulated pods and servers. In the
//! stories of [`members`], agents and ZooKeeper servers run in pods.

mod admission_policy;
pub mod agent;
pub mod alerts;
pub mod api_proxy;
pub mod audit;
pub mod chaos;
pub mod clock;
pub mod diagnosis;
pub mod federation;
pub mod installation;
pub mod interruption;
pub mod layouts;
pub mod members;
pub mod metrics;
pub mod patience;
pub mod programs;
pub mod registers;
pub mod scenarios;
pub mod scene;
pub mod table;
pub mod versions;
