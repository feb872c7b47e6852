//! `mczk diff`: what an apply of a MultiClusterZooKeeper would restart, move or refuse.

mod text;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::Value;

use super::plan::ServerImage;
use crate::terminal::{
    connection::Connection,
    documents::read_one,
    error::Error,
    output::{Exit, Format, is_coloured, print},
    run::block_on,
    scope::Namespace,
};
use mczk_api::API_VERSION;
use mczk_reading::read_only;
use mczk_rules::rollout::plan::Observed;

/// Prints what an apply of a MultiClusterZooKeeper would restart, move or refuse
///
/// The API server validates the object in a dry run and stores nothing. Then the rules of the operator show which
/// clusters get other voters, and where servers restart. The spec of the file counts as the whole spec. Labels and
/// annotations of the file are added to those of the live object.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 if the apply changes nothing, 3 if it changes something. 1 for a failure such \
                        as a refusal, 2 for a wrong command line.")]
pub struct Diff {
    /// File with the object, YAML or JSON; - is standard input
    #[arg(short, long, env = "MCZK_DIFF_FILENAME", value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    namespace: Namespace,
    #[command(flatten)]
    server_image: ServerImage,
    /// Format of the output [default: text]
    #[arg(short, long, env = "MCZK_DIFF_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    #[command(flatten)]
    connection: Connection,
}

impl Diff {
    /// Prints the diff.
    ///
    /// # Errors
    /// If the file holds no MultiClusterZooKeeper, or the API server refuses the object or does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        let object = read_one(&self.filename)?;
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let object = declared(object, &self.namespace.name(&client))?;
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            let live = read_only::ensemble(&client, &namespace, &name).await.map_err(anyhow::Error::from)?;
            let wanted = merged(live.as_ref(), object);
            let stored = read_only::dry_run(&client, &wanted, live.is_some()).await.map_err(refused)?;
            let (around, before) = self.observe(&client, live.as_ref(), &stored).await?;
            let after = view::with_object(around, &stored).map_err(anyhow::Error::from)?;
            let view = view::view(live.as_ref(), &stored, before.as_ref(), &after, Timestamp::now());
            let view = view.map_err(anyhow::Error::from)?;
            print(&match self.output {
                Some(format) => format.text(&view)?,
                None => text::text(&view, is_coloured()),
            })?;
            Ok(Exit::waits(view.creates || !view.fields.is_empty()))
        })
    }

    /// What the operator observes around the object, and the same with the live object if there is one.
    async fn observe(
        &self,
        client: &Client,
        live: Option<&DynamicObject>,
        stored: &DynamicObject,
    ) -> Result<(Observed, Option<Observed>), Error> {
        match live {
            Some(live) => {
                let observed = self.server_image.observe(client, live).await?;
                Ok(((*observed).clone(), Some(*observed)))
            }
            None => Ok((self.server_image.observe_new(client, stored).await?, None)),
        }
    }
}

/// The object of the file, with its namespace.
fn declared(object: Value, namespace: &str) -> Result<DynamicObject, Error> {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    if (field("apiVersion"), field("kind")) != (API_VERSION, "MultiClusterZooKeeper") {
        return Err(Error::Usage(format!(
            "the file holds {} of {}: give a MultiClusterZooKeeper of {API_VERSION}",
            field("kind"),
            field("apiVersion")
        )));
    }
    let mut object: DynamicObject =
        serde_json::from_value(object).map_err(|error| Error::Usage(format!("cannot parse the object: {error}")))?;
    if object.metadata.name.is_none() {
        return Err(Error::Usage("the object has no metadata.name".to_owned()));
    }
    object.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(object)
}

/// The live object with the spec, labels and annotations of the file.
fn merged(live: Option<&DynamicObject>, file: DynamicObject) -> DynamicObject {
    let Some(live) = live else { return file };
    let mut next = live.clone();
    let add = |to: &mut Option<BTreeMap<String, String>>, from: Option<BTreeMap<String, String>>| {
        if let Some(from) = from {
            to.get_or_insert_default().extend(from);
        }
    };
    add(&mut next.metadata.labels, file.metadata.labels);
    add(&mut next.metadata.annotations, file.metadata.annotations);
    next.metadata.managed_fields = None;
    if let (Some(members), Some(spec)) = (next.data.as_object_mut(), file.data.get("spec")) {
        members.insert("spec".to_owned(), spec.clone());
    }
    next
}

/// Why the API server refuses the object: each field with its reason.
fn refused(error: kube::Error) -> Error {
    let kube::Error::Api(status) = error else { return Error::Failed(anyhow!(error)) };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<String> =
        causes
            .map(|cause| {
                if cause.field.is_empty() {
                    cause.message.clone()
                } else {
                    format!("{}: {}", cause.field, cause.message)
                }
            })
            .collect();
    let message = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
    Error::Failed(anyhow!("the API server refuses the object ({}): {message}", status.reason))
}

#[cfg(test)]
mod tests;
