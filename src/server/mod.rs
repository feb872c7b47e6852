//! What runs in a server's pod: the parent process of `ZooKeeper`.
//!
//! [`start`] decides how a server starts and [`configuration`] writes what it starts with, both pure; [`volume`] keeps what
//! the data volume holds; [`run`] starts `ZooKeeper` and waits for its end; [`session`] and [`words`] ask it and act on it;
//! [`control`] lets agents do so; [`identity`] and [`peers`] are how servers know each other.

pub mod configuration;
pub mod control;
pub mod four_letter_words;
pub mod identity;
pub mod metrics;
pub mod peers;
pub mod process;
pub mod resolver;
pub mod session;
pub mod start;
pub mod supervisor;
pub mod volume;
