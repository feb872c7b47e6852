//! The command line of mczk.

use std::process::ExitCode;

fn main() -> ExitCode {
    mczk::cli::main()
}
