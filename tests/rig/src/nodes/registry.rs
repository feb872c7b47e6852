//! A registry of images that nodes pull from. It runs on the machine itself, so that no cut reaches it, from the first image
//! that a caller pushes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::api::wait_for;
use crate::command::run_blocking;
use crate::control_plane::Plan;
use crate::layout::{Component, write_json};
use crate::nodes::NO_NODES;
use crate::nodes::address::MACHINE;
use crate::progress::Progress;
use crate::tools;

/// The name of the component.
const NAME: &str = "registry";
const PORT: u16 = 5000;

/// The registry's name in references to images.
fn address() -> String {
    format!("{MACHINE}:{PORT}")
}

/// The folder below containerd's folder for registries, and the file in it: the registry has no certificate.
pub(crate) fn hosts() -> (String, String) {
    let url = format!("http://{}", address());
    let hosts = format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    (format!("{}/hosts.toml", address()), hosts)
}

/// The registry reads YAML, which includes JSON.
fn config(address: &str, storage: &Path) -> Value {
    json!({
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": storage}},
        "http": {"addr": address},
    })
}

/// The command that copies an image with its SBOMs from an OCI image layout.
fn copy(regctl: &Path, source: &str, reference: &str) -> Command {
    let mut command = Command::new(regctl);
    command.arg(format!("--host=reg={},tls=disabled", address()));
    command.args(["image", "copy", "--referrers", &format!("ocidir://{source}"), reference]);
    command
}

impl Plan {
    /// Copies an image of an OCI image layout, `FOLDER:TAG`, into the registry as `name`, and returns the reference for
    /// pods. The first call builds and starts the registry.
    pub(crate) async fn push(&self, source: &str, name: &str, progress: &Progress) -> Result<String> {
        ensure!(self.state.nodes.is_some(), NO_NODES);
        let building = progress.clone();
        let tools = tokio::task::spawn_blocking(move || tools::ensure_registry(&building)).await??;
        let file = self.layout.etc().join("registry.json");
        write_json(&file, &config(&address(), &self.layout.dir.join("registry")))?;
        let (registry, file) = (tools.join("registry").display().to_string(), file.display().to_string());
        // By default the registry sends traces, and logs that nothing takes them.
        let argv = ["env".into(), "OTEL_TRACES_EXPORTER=none".into(), registry, "serve".into(), file];
        self.launch(&Component { name: NAME.into(), argv: argv.into(), wanted: true, revision: 1, place: None })?;
        wait_for("the registry answers", || async { Ok(TcpStream::connect(address()).await.ok()) }).await?;
        let reference = format!("{}/{name}", address());
        let command = copy(&tools.join("regctl"), source, &reference);
        tokio::task::spawn_blocking(move || run_blocking(command, Signal::SIGTERM))
            .await?
            .with_context(|| format!("cannot push {source}: `make image` makes an image layout"))?;
        Ok(reference)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn nodes_find_the_registry_by_the_name_in_references() {
        let (file, hosts) = hosts();
        assert_eq!(file, format!("{}/hosts.toml", address()));
        assert!(hosts.starts_with(&format!("server = \"http://{}\"\n", address())));
        assert_eq!(config("a:1", Path::new("/x"))["http"]["addr"], "a:1");
    }

    #[test]
    fn an_image_is_copied_with_its_sboms() {
        let command = copy(Path::new("regctl"), "/layout:1", "r/mczk:1");
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        assert_eq!(arguments[1..], ["image", "copy", "--referrers", "ocidir:///layout:1", "r/mczk:1"]);
    }
}
