//! A disk that loses power.
//!
//! [`Mounted`] shows a disk in memory as a folder of this machine, by FUSE. It records every operation that changes
//! something, and every sync. It can freeze after any of them: then each request fails, as on a machine that is off. It can
//! also be full.
//!
//! [`Recording::after_power_loss`] gives the content that a disk can have when the power returns. What was synced is there.
//! Of everything else a chosen part is there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod content;
mod mount;
mod power_loss;
mod recording;
mod requests;
mod tree;

pub use content::Content;
pub use mount::Mounted;
pub use power_loss::{Order, Survivors};
pub use recording::{Entry, Inode, Operation, Recording};
pub use tree::Tree;
