//! `mczk install` on control planes of Karmada that run in pods of the host, as the installers of Karmada make them.
//!
//! The clusters are those of the rig, without its Karmada. The installers are the real ones. The images that they name
//! have the programs of the rig.

mod authority;
mod control_plane;
mod ground;
mod helm;
mod karmadactl;
mod operator;
mod story;

use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use ground::Ground;

/// A way to install Karmada.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Layout {
    /// `karmadactl init`, with one member cluster of mode Push and one of mode Pull
    Karmadactl,
    /// The Helm chart of Karmada, with one member cluster of mode Push
    Helm,
    /// The operator of Karmada, with one member cluster of mode Push
    Operator,
}

/// Runs the story in each of these layouts, one after another; in all if none is named.
///
/// # Errors
/// The first error, with the folder of the evidence.
pub async fn run(layouts: &[Layout]) -> Result<()> {
    let layouts = if layouts.is_empty() { Layout::value_variants() } else { layouts };
    for layout in layouts {
        let begun = Instant::now();
        let ground = Ground::up(begun).await?;
        let result = match layout {
            Layout::Karmadactl => Box::pin(karmadactl::run(&ground)).await,
            Layout::Helm => Box::pin(helm::run(&ground)).await,
            Layout::Operator => Box::pin(operator::run(&ground)).await,
        };
        let folder = ground.folder.clone();
        ground.down(result.is_err()).await.context("taking everything down")?;
        result.with_context(|| format!("layout {layout:?}; evidence: {}", folder.display()))?;
        println!("[{:6.1} s] layout {layout:?}: done", begun.elapsed().as_secs_f64());
    }
    Ok(())
}
