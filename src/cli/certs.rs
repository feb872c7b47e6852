//! `mczk certs`: an authority and a serving certificate for the webhook.

use clap::Args;

use super::Error;

/// What is made, and where.
#[derive(Debug, Args)]
pub struct Certs {}

impl Certs {
    /// Makes them.
    ///
    /// # Errors
    /// If something cannot be written.
    pub fn run(self) -> Result<(), Error> {
        Err(Error::Usage("this is not built yet".to_owned()))
    }
}
