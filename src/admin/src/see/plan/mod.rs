//! `mczk plan`: what the operator would write next, from its own rules.

mod text;
mod view;

use anyhow::Context;
use clap::{Args, builder::NonEmptyStringValueParser};
use jiff::Timestamp;
use kube::{Client, api::DynamicObject};

use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, Format, is_coloured, print},
    run::block_on,
    scope::{One, existing},
};
use mczk_reading::read_only::{self, ReadOutcome};
use mczk_rules::{
    rollout::plan::{Observed, plan},
    view::steps::{self, StepView},
};

use text::text;
use view::{PlanView, view};

/// Prints what the operator would write next, and what holds it back
///
/// It observes what the operator observes, and calls the same rules, but writes nothing. The program needs the version
/// of the operator: another version may decide otherwise. You need the right to list Secrets in the namespace; their
/// contents are not read.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if nothing is to write and nothing waits, 1 for a failure, 2 for a wrong command \
                        line, 3 otherwise."
)]
pub struct Plan {
    #[command(flatten)]
    object: One,
    #[command(flatten)]
    server_image: ServerImage,
    /// Format of the output [default: text]
    #[arg(short, long, env = "MCZK_PLAN_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    #[command(flatten)]
    connection: Connection,
}

/// The only setting of the operator that its decisions depend on.
#[derive(Debug, Default, Args)]
pub(crate) struct ServerImage {
    /// Image of mczk with which the operator runs, its flag --server-image [default: that of the template]
    #[arg(long, env = "MCZK_SERVER_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    server_image: Option<String>,
}

impl ServerImage {
    /// Everything that the operator observes of an object.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, the object is gone, or this version cannot parse it.
    pub(crate) async fn observe(&self, client: &Client, object: &DynamicObject) -> Result<Box<Observed>, Error> {
        let outcome = read_only::observe(client, object, self.server_image.as_deref()).await;
        match outcome.map_err(anyhow::Error::from)? {
            ReadOutcome::Observed(observed) => Ok(observed),
            ReadOutcome::Gone => Err(Error::Failed(anyhow::anyhow!("the object has just been deleted"))),
            ReadOutcome::Unreadable(_, error) => {
                Err(Error::Failed(anyhow::anyhow!("this version of mczk cannot parse the object: {error}")))
            }
        }
    }

    /// What the operator observes of an object that does not exist yet.
    ///
    /// # Errors
    /// As [`ServerImage::observe`].
    pub(super) async fn observe_new(&self, client: &Client, object: &DynamicObject) -> Result<Observed, Error> {
        let parsed = serde_json::to_value(object).and_then(serde_json::from_value);
        let object = parsed.context("this version of mczk cannot parse the object")?;
        let observed = read_only::observe_new(client, object, self.server_image.as_deref()).await;
        Ok(observed.map_err(anyhow::Error::from)?)
    }
}

impl ServerImage {
    async fn view(&self, client: &Client, object: &DynamicObject) -> Result<PlanView, Error> {
        let observed = self.observe(client, object).await?;
        Ok(view(&observed, &plan(&observed, Timestamp::now())).map_err(anyhow::Error::from)?)
    }
}

/// The steps of the operator's next plan.
///
/// # Errors
/// As [`ServerImage::observe`].
pub(super) async fn next_steps(client: &Client, object: &DynamicObject) -> Result<Vec<StepView>, Error> {
    let observed = Box::pin(ServerImage::default().observe(client, object)).await?;
    Ok(steps::view(&plan(&observed, Timestamp::now()).steps))
}

/// What the operator would write next, as text.
///
/// # Errors
/// As [`ServerImage::observe`].
pub(crate) async fn report(client: &Client, object: &DynamicObject) -> Result<String, Error> {
    Ok(text(&ServerImage::default().view(client, object).await?, false))
}

impl Plan {
    /// Prints the plan.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or no object has the name.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let (namespace, name) = (self.object.namespace(&client), &self.object.name);
            let object = existing(&client, &namespace, name).await?;
            let view = self.server_image.view(&client, &object).await?;
            print(&match self.output {
                Some(format) => format.text(&view)?,
                None => text(&view, is_coloured()),
            })?;
            Ok(Exit::waits(view.is_open()))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
