//! The story of `mczk install` and `mczk uninstall`, on a real federation with nodes. Needs root.

use std::process::ExitCode;

use e2e::{installation::run, interruption::until_interrupted};

#[tokio::main]
async fn main() -> ExitCode {
    until_interrupted("installation", run()).await
}
