//! `mczk support-bundle`: everything that a supporter needs, in one archive, without the secrets that mczk recognizes.

mod archive;
mod collect;
mod newest;
mod redact;
mod request;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, builder::RangedU64ValueParser};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt, api::DynamicObject};

use crate::{
    see::{
        plan,
        status::{self, Style},
        why,
    },
    terminal::{
        connection::Connection,
        error::Error,
        host_connection::HostConnection,
        output::{Exit, print},
        proxy::{self, Proxy},
        run::block_on,
        scope::{Scope, existing},
    },
};
use mczk_reading::read_only;

use archive::Archive;
use collect::Collector;

/// How the user asks for the operator.
const NO_HOST: &str = "name the cluster in which the operator runs with --host-context or --host-kubeconfig";

/// Writes an archive for support: objects, logs and the output of status, why and plan. Read it before you send it
///
/// It reads karmada-apiserver, and every member cluster through Karmada's cluster proxy. Of Secrets it stores names, types
/// and keys alone, and hides the values of environment variables. From everything else it removes what it recognizes as a
/// password, token or key, and no program recognizes all of them. INDEX.txt in the archive names what is missing and why.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 if everything could be read, 1 for a failure, 2 for \
                        a wrong command line, 3 if something is missing.")]
pub struct SupportBundle {
    #[command(flatten)]
    scope: Scope,
    /// File to write, which must not exist [default: mczk-support-TIME.tar.gz]
    #[arg(short, long, env = "MCZK_BUNDLE_FILE", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Longest part of a log, from its end, in KiB
    #[arg(long, env = "MCZK_BUNDLE_MAX_LOG_KIBIBYTES", value_name = "KIB", default_value_t = 1024,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    max_log_kibibytes: usize,
    /// Largest size of all files before compression, in MiB
    #[arg(long, env = "MCZK_BUNDLE_MAX_MEBIBYTES", value_name = "MIB", default_value_t = 256,
          value_parser = RangedU64ValueParser::<usize>::new().range(2..=4096))]
    max_mebibytes: usize,
    #[command(flatten)]
    host: HostConnection,
    #[command(flatten)]
    connection: Connection,
}

impl SupportBundle {
    /// Writes the bundle.
    ///
    /// # Errors
    /// [`Error::Usage`] if the file exists; otherwise if the ensembles cannot be read, or the file cannot be written.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, url) = self.connection.client().await?;
            let host = self.host.client_if_any(&self.connection).await?;
            let has_host = host.is_some();
            let objects = self.ensembles(&client).await?;
            let now = Timestamp::now();
            let folder = format!("mczk-support-{}", now.strftime("%Y%m%dT%H%M%SZ"));
            let path = self.file.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
            let file = create(&path)?;
            let seconds = u64::try_from(now.as_second()).unwrap_or(0);
            let archive = Archive::new(file, &folder, seconds, self.max_mebibytes << 20);
            let head = head(&now, &url);
            match Box::pin(self.write(archive, &head, (&client, host), &objects)).await {
                Ok(missing) => {
                    print(&summary(&path, missing, has_host))?;
                    Ok(Exit::waits(missing > 0))
                }
                Err(error) => {
                    // A part of an archive cannot be read.
                    let _ = remove_file(&path);
                    Err(error)
                }
            }
        })
    }

    /// Fills the archive. Returns the number of things that are missing.
    async fn write(
        &self,
        mut archive: Archive<File>,
        head: &str,
        (client, host): (&Client, Option<Client>),
        objects: &[DynamicObject],
    ) -> Result<usize, Error> {
        let clusters = match read_only::member_clusters(client).await {
            Ok(clusters) => clusters.iter().map(|cluster| cluster.name().to_owned()).collect(),
            Err(error) => {
                archive.missing("clusters that no ensemble names", &redact::text(&error.to_string()));
                clusters_of(objects)
            }
        };
        Box::pin(self.karmada(&mut archive, client, objects, &clusters)).await?;
        self.members(&mut archive, objects, &clusters).await?;
        match host {
            Some(host) => {
                let mut collector = self.collector(&mut archive, host, "host");
                if collector.version().await? {
                    collector.lists(request::of_program_namespace(&self.host.namespace, request::OPERATOR)).await?;
                }
            }
            None => archive.not_asked("host", NO_HOST),
        }
        let missing = archive.count_missing();
        archive.finish(head).and_then(|file| file.sync_all()).context("cannot write the bundle")?;
        Ok(missing)
    }

    async fn ensembles(&self, client: &Client) -> Result<Vec<DynamicObject>, Error> {
        let namespace = self.scope.namespace(client);
        if let (Some(name), Some(namespace)) = (&self.scope.name, &namespace) {
            return Ok(vec![existing(client, namespace, name).await?]);
        }
        Ok(read_only::ensembles(client, namespace.as_deref()).await.map_err(anyhow::Error::from)?)
    }

    fn collector<'a, W: Write>(&self, archive: &'a mut Archive<W>, client: Client, folder: &str) -> Collector<'a, W> {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{folder}");
        Collector { archive, client, folder: format!("{folder}/"), log_limit: self.max_log_kibibytes << 10 }
    }

    /// The control plane.
    async fn karmada(
        &self,
        archive: &mut Archive<File>,
        client: &Client,
        objects: &[DynamicObject],
        clusters: &[String],
    ) -> Result<(), Error> {
        let mut collector = self.collector(archive, client.clone(), "karmada");
        if !collector.version().await? {
            return Ok(());
        }
        collector.lists(request::of_karmada(clusters)).await?;
        for namespace in namespaces(objects) {
            collector.lists(request::of_karmada_namespace(&namespace)).await?;
        }
        for object in objects {
            let folder = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
            let style = Style { wide: true, namespaces: false, coloured: false };
            let status = status::view_of(client, object).await.map(|view| status::tree(&view, style));
            let texts = [
                ("status", status),
                ("why", why::report(client, object).await),
                ("plan", plan::report(client, object).await),
            ];
            for (command, text) in texts {
                collector.text(&format!("{folder}/{command}.txt"), text.map_err(|error| error.to_string()))?;
            }
        }
        Ok(())
    }

    /// The member clusters, one after the other.
    async fn members(
        &self,
        archive: &mut Archive<File>,
        objects: &[DynamicObject],
        clusters: &[String],
    ) -> Result<(), Error> {
        let proxy = Proxy::new(self.connection.config().await?);
        for cluster in clusters {
            let member = proxy.client(cluster)?;
            let mut collector = self.collector(archive, member, &format!("clusters/{cluster}"));
            if !collector.version().await? {
                continue;
            }
            collector.lists(request::of_program_namespace(request::AGENTS, request::AGENT)).await?;
            for namespace in namespaces(objects) {
                let requests = request::of_member_namespace(&namespace, self.scope.name.as_deref());
                collector.lists(requests).await?;
            }
        }
        Ok(())
    }
}

/// What the command prints at its end.
fn summary(path: &Path, missing: usize, has_host: bool) -> String {
    let mut text = format!("{}: read it before you send it: no program recognizes every secret.", path.display());
    if missing > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, " INDEX.txt names what is missing: {missing}.");
    }
    if !has_host {
        let _ = write!(text, "\nThe operator's pods and logs are not in it: {NO_HOST}.");
    }
    text + "\n"
}

/// What the index begins with.
fn head(now: &Timestamp, url: &str) -> String {
    format!(
        "Support bundle of mczk {}, {now}\nkarmada-apiserver: {}\n\
         Read everything before you send it: no program recognizes every secret.\n\
         Secrets are stored with names, types and keys alone. {} stands in place of what mczk recognizes as a credential.",
        env!("CARGO_PKG_VERSION"),
        redact::text(url),
        redact::REDACTED
    )
}

/// A new file that only its owner reads.
fn create(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| Error::Usage(format!("cannot create {} (--file): {error}", path.display())))
}

/// The namespaces of ensembles, each once.
fn namespaces(objects: &[DynamicObject]) -> BTreeSet<String> {
    objects.iter().filter_map(ResourceExt::namespace).collect()
}

/// The clusters that the status of an ensemble names.
fn clusters_of(objects: &[DynamicObject]) -> Vec<String> {
    let statuses = objects.iter().filter_map(|object| object.data.get("status"));
    let mut names: Vec<String> = statuses
        .filter_map(|status| serde::Deserialize::deserialize(status).ok())
        .flat_map(|status| proxy::clusters(&status))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_the_archive_lacks() {
        let path = Path::new("a.tar.gz");
        assert_eq!(
            summary(path, 0, true),
            "a.tar.gz: read it before you send it: no program recognizes every secret.\n"
        );
        let all = summary(path, 2, false);
        assert!(all.contains("INDEX.txt names what is missing: 2.") && all.contains("--host-context"), "{all}");
    }
}
