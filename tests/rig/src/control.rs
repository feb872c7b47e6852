//! Stops, starts, restarts and kills single components of a running rig.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use crate::layout::{Activity, Component, Layout};
use crate::start::notify;

/// Includes the 3 s from SIGTERM to SIGKILL, and a reserve for a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) async fn stop(layout: &Layout, name: &str) -> Result<()> {
    change(layout, name, |component| component.wanted = false)?;
    wait(layout, name, "has not ended", |now| now.process.is_none()).await
}

pub(crate) async fn start(layout: &Layout, name: &str) -> Result<()> {
    let component = change(layout, name, |component| component.wanted = true)?;
    wait(layout, name, "does not start", |now| now.process.is_some() && now.revision == component.revision).await
}

pub(crate) async fn restart(layout: &Layout, name: &str) -> Result<()> {
    let component = change(layout, name, |component| {
        component.wanted = true;
        component.revision += 1;
    })?;
    wait(layout, name, "does not start again", |now| now.process.is_some() && now.revision == component.revision).await
}

/// As [`restart`], with the program of the same name in another folder.
pub(crate) async fn replace(layout: &Layout, name: &str, folder: &Path) -> Result<()> {
    change(layout, name, |component| {
        if let Some(program) = component.argv.first_mut() {
            let name = Path::new(program.as_str()).file_name().unwrap_or_default();
            *program = folder.join(name).display().to_string();
        }
    })?;
    restart(layout, name).await
}

/// Kills a component by SIGKILL. Returns when the supervisor has started it again, after its pause.
pub(crate) async fn kill(layout: &Layout, name: &str) -> Result<()> {
    known(layout, name)?;
    let record = layout.supervised()?.context("the supervisor of the rig has ended")?;
    let process = record
        .components
        .get(name)
        .and_then(|activity| activity.process.clone())
        .with_context(|| format!("{name} does not run"))?;
    process.signal(Signal::SIGKILL);
    wait(layout, name, "does not start again", |now| now.process.as_ref().is_some_and(|new| *new != process)).await
}

fn known(layout: &Layout, name: &str) -> Result<Component> {
    match layout.read_component(name)? {
        // The file of m2-apiserver is that of m2/apiserver.
        Some(component) if component.name == name => Ok(component),
        _ => {
            let names: Vec<_> = layout.components()?.into_keys().collect();
            bail!("no component {name:?}: there are {}", names.join(", "))
        }
    }
}

fn change(layout: &Layout, name: &str, edit: impl FnOnce(&mut Component)) -> Result<Component> {
    let mut component = known(layout, name)?;
    edit(&mut component);
    layout.write_component(&component)?;
    notify(layout)?;
    Ok(component)
}

async fn wait(layout: &Layout, name: &str, otherwise: &str, done: impl Fn(&Activity) -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let record = layout.supervised()?.context("the supervisor of the rig has ended")?;
        let now = record.components.get(name).cloned().unwrap_or_default();
        if done(&now) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!(
                "{name} {otherwise} ({}): see {}",
                now.last_end.as_deref().unwrap_or("no reason known"),
                layout.log(name).display()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
}
