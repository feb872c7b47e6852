//! `mczk install` on Karmada control planes in pods, as the installers of Karmada make them. Needs root.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    layouts::{Layout, run},
};

/// Installs mczk on Karmada control planes in pods
#[derive(Debug, Parser)]
struct Arguments {
    /// The ways to install Karmada [default: all]
    layouts: Vec<Layout>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    until_interrupted("layouts", run(&arguments.layouts)).await
}
