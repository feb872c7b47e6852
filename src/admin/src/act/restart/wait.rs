//! Waits until a rollout is complete, and shows its progress as `mczk status` does.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use kube::Client;

use super::rule::{Progress, progress};
use crate::{
    see::status::{self, Style},
    terminal::{
        error::Error,
        output::{is_coloured, print},
        scope::not_found,
    },
};
use mczk_reading::read_only;

/// Waits until all clusters have completed a generation or a newer one. False if the time is over before. A failed read is
/// repeated: the rollout goes on without this command.
///
/// # Errors
/// If the object is gone, or standard output is closed.
pub(super) async fn until_complete(
    client: &Client,
    (namespace, name): (&str, &str),
    generation: i64,
    limit: Duration,
) -> Result<bool, Error> {
    let begin = Instant::now();
    let (mut shown, mut failure) = (String::new(), String::new());
    loop {
        match look(client, namespace, name, generation).await {
            Ok(None) => return Err(not_found(namespace, name)),
            Ok(Some((state, text))) => {
                failure.clear();
                if text != shown {
                    print(&if is_coloured() { format!("{}{text}", status::CLEAR) } else { text.clone() })?;
                    shown = text;
                }
                if state == Progress::Complete {
                    print(&format!("Complete after {} s.\n", begin.elapsed().as_secs()))?;
                    return Ok(true);
                }
            }
            Err(error) => {
                let text = error.to_string();
                if text != failure {
                    // Standard error may be closed. The exit code remains.
                    let _ = writeln!(io::stderr(), "mczk: {text}: trying again");
                    failure = text;
                }
            }
        }
        if begin.elapsed() > limit {
            print(&format!(
                "Not complete after {} s. The rollout goes on: see mczk why {name} -n {namespace}\n",
                limit.as_secs()
            ))?;
            return Ok(false);
        }
        tokio::time::sleep(status::WATCH_INTERVAL).await;
    }
}

/// The progress and its text: the tree of `mczk status` on a terminal, else one line.
async fn look(
    client: &Client,
    namespace: &str,
    name: &str,
    generation: i64,
) -> Result<Option<(Progress, String)>, Error> {
    let object = read_only::ensemble(client, namespace, name).await.map_err(anyhow::Error::from)?;
    let Some(object) = object else { return Ok(None) };
    let state = progress(&object, generation);
    let view = status::view_of(client, &object).await?;
    let text = if is_coloured() {
        status::tree(&view, Style { wide: false, namespaces: false, coloured: true })
    } else {
        let waiting = "Waiting for the operator to start the rollout";
        let rollout = if state == Progress::Waiting { waiting } else { view.rollout.as_deref().unwrap_or(waiting) };
        format!("{rollout}\n")
    };
    Ok(Some((state, text)))
}
