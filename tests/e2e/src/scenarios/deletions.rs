//! Deletions.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::{
    agent::Behaviour,
    federation::Federation,
    scene::{Scene, ensemble},
};

pub(super) async fn deleted(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "end", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.delete("zoo").await?;
    // The name can be used again.
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.delete("zoo").await
}

pub(super) async fn deleted_while_rolling(federation: &Federation) -> Result<()> {
    let slow = Behaviour { start: Duration::from_secs(2), ..Behaviour::default() };
    let scene = Scene::new(federation, "break", slow).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.first_deploying("zoo", 1).await?;
    scene.delete("zoo").await
}
