//! The programs of a federation. `go build` makes them, in the versions of the tools module `tests/karmada`. Member clusters
//! may have those of another version of Kubernetes, of a module in `tests/kubernetes`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use sha2::{Digest, Sha256};

use crate::command::run_blocking;
use crate::layout::{cache, write};
use crate::progress::Progress;

/// The programs of a federation: name and package. The packages' own names are not unique.
const TOOLS: [(&str, &str); 10] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("karmada-controller-manager", "github.com/karmada-io/karmada/cmd/controller-manager"),
    ("karmada-scheduler", "github.com/karmada-io/karmada/cmd/scheduler"),
    ("karmada-webhook", "github.com/karmada-io/karmada/cmd/webhook"),
    ("karmada-aggregated-apiserver", "github.com/karmada-io/karmada/cmd/aggregated-apiserver"),
    ("karmada-agent", "github.com/karmada-io/karmada/cmd/agent"),
    // Members of mode Push join by it.
    ("karmadactl", "github.com/karmada-io/karmada/cmd/karmadactl"),
];

/// The program that only tests and users run.
const HELM: [(&str, &str); 1] = [("helm", "helm.sh/helm/v4/cmd/helm")];

/// The programs of nodes.
const NODE_TOOLS: [(&str, &str); 3] = [
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
];

/// The program of Karmada's operator, for rigs without Karmada. The module pins it without a line for the tool: another
/// such line would be another key, and so another build of all programs.
const OPERATOR: [(&str, &str); 1] = [("karmada-operator", "github.com/karmada-io/karmada/operator/cmd/operator")];

/// `coredns` has its own module, because its dependencies exclude those of Karmada.
const COREDNS: [(&str, &str); 1] = [("coredns", ".")];

/// The programs of a registry have a module of their own, which `make image` uses too.
const REGISTRY: [(&str, &str); 2] = [
    ("registry", "github.com/distribution/distribution/v3/cmd/registry"),
    ("regctl", "github.com/regclient/regclient/cmd/regctl"),
];

const FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-ldflags"];

/// Linker flags of a program whose version does not matter.
const PLAIN: &str = "-s -w";

/// The file of Karmada's custom resource definitions and roles, in the tools' folder.
pub(crate) const KARMADA_RESOURCES: &str = "karmada-resources.yaml";
/// The file of Karmada's admission webhooks, in the tools' folder.
pub(crate) const KARMADA_WEBHOOKS: &str = "karmada-webhooks.yaml";
/// The archive of Karmada's custom resource definitions, in the tools' folder.
pub(crate) const KARMADA_CRDS: &str = "karmada-crds.tar.gz";
/// The archive of the manifests of Karmada's operator, in the tools' folder.
pub(crate) const KARMADA_OPERATOR: &str = "karmada-operator.tar.gz";
/// The archive of Karmada's Helm chart, in the tools' folder.
pub(crate) const KARMADA_CHART: &str = "karmada-chart.tar.gz";

/// The tools module in the source of this program.
fn default_module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../karmada")
}

fn registry_module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../image")
}

/// Builds the missing programs of a federation and returns their folder. Blocks, the first time for about 10 minutes.
pub(crate) fn ensure(module: Option<&Path>, progress: &Progress) -> Result<PathBuf> {
    let module = module.map_or_else(default_module, Path::to_owned);
    let folder = cache()?.join("tools").join(key(&module, &linker_flags(&module)?)?);
    let amount = "all take about 10 minutes on 2 cores and a download of 1 GB";
    build_all(&module, &folder, &linker_flags(&module)?, &TOOLS, amount, progress)?;
    let are_copied = || {
        let copied = [KARMADA_RESOURCES, KARMADA_WEBHOOKS, KARMADA_CRDS, KARMADA_CHART, KARMADA_OPERATOR];
        copied.iter().all(|name| folder.join(name).exists())
    };
    if !are_copied() {
        let _alone = lock(&folder, progress)?;
        if !are_copied() {
            manifests(&module, &folder)?;
        }
    }
    Ok(folder)
}

/// As [`ensure`], with Helm, which only tests and users run. Blocks, the first time for about 12 minutes.
pub(crate) fn ensure_with_helm(module: Option<&Path>, progress: &Progress) -> Result<PathBuf> {
    let folder = ensure(module, progress)?;
    let module = module.map_or_else(default_module, Path::to_owned);
    build_all(&module, &folder, &linker_flags(&module)?, &HELM, "about half a minute after the others", progress)?;
    Ok(folder)
}

/// As [`ensure`], with the programs of nodes. Returns the file of `coredns`, which is in another folder.
pub(crate) fn ensure_nodes(module: Option<&Path>, progress: &Progress) -> Result<PathBuf> {
    let folder = ensure(module, progress)?;
    let module = module.map_or_else(default_module, Path::to_owned);
    let amount = "less than a minute after the others";
    build_all(&module, &folder, &linker_flags(&module)?, &NODE_TOOLS, amount, progress)?;
    let module = default_module().join("coredns");
    let folder = cache()?.join("tools").join(format!("coredns-{}", key(&module, PLAIN)?));
    build_all(&module, &folder, PLAIN, &COREDNS, "about 2 minutes", progress)?;
    Ok(folder.join("coredns"))
}

/// Builds the missing programs of a member cluster, in the version of Kubernetes of a module, and returns their folder.
/// Blocks, the first time for about 10 minutes.
pub(crate) fn ensure_kubernetes(module: &Path, progress: &Progress) -> Result<PathBuf> {
    let flags = linker_flags(module)?;
    let folder = cache()?.join("tools").join(format!("kubernetes-{}", key(module, &flags)?));
    build_all(module, &folder, &flags, &kubernetes_programs(), "all take about 10 minutes on 2 cores", progress)?;
    Ok(folder)
}

/// The programs that are of the version of Kubernetes of their member cluster.
fn kubernetes_programs() -> Vec<(&'static str, &'static str)> {
    let of_kubernetes =
        |(name, package): &(&str, &str)| package.starts_with("k8s.io/kubernetes/") && *name != "kubectl";
    TOOLS.into_iter().chain(NODE_TOOLS).filter(of_kubernetes).collect()
}

/// True if a program is of the version of Kubernetes of its member cluster.
pub(crate) fn is_of_kubernetes(name: &str) -> bool {
    kubernetes_programs().iter().any(|(program, _)| *program == name)
}

/// Builds Karmada's operator beside the other programs, if it is missing. Blocks, the first time for about a minute.
pub(crate) fn ensure_operator(module: Option<&Path>, progress: &Progress) -> Result<()> {
    let module = module.map_or_else(default_module, Path::to_owned);
    let flags = linker_flags(&module)?;
    let folder = cache()?.join("tools").join(key(&module, &flags)?);
    build_all(&module, &folder, &flags, &OPERATOR, "about a minute after the others", progress)
}

/// Builds the missing programs of a registry and returns their folder. Blocks, the first time for about 2 minutes.
pub(crate) fn ensure_registry(progress: &Progress) -> Result<PathBuf> {
    let module = registry_module();
    let folder = cache()?.join("tools").join(format!("registry-{}", key(&module, PLAIN)?));
    build_all(&module, &folder, PLAIN, &REGISTRY, "about 2 minutes", progress)?;
    Ok(folder)
}

/// Builds the missing programs, one after the other: the linker needs much memory.
fn build_all(
    module: &Path,
    folder: &Path,
    linker_flags: &str,
    tools: &[(&str, &str)],
    amount: &str,
    progress: &Progress,
) -> Result<()> {
    let missing = || tools.iter().filter(|(name, _)| !folder.join(name).exists()).collect::<Vec<_>>();
    if missing().is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let _alone = lock(folder, progress)?;
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    progress.print(format!(
        "building {} of {} programs into {}: {amount}, less with a warm Go cache; only the first time",
        missing.len(),
        tools.len(),
        folder.display()
    ));

    for (i, (name, package)) in (1..).zip(&missing) {
        progress.during(&format!("building {name} ({i} of {})", missing.len()), || {
            build(module, folder, linker_flags, name, package)
        })?;
    }
    Ok(())
}

/// Waits until no other process writes into a folder of tools. It may begin once the file is dropped.
fn lock(folder: &Path, progress: &Progress) -> Result<File> {
    let parent = folder.parent().context("a folder of tools lies in the cache")?;
    let lock = File::create(parent.join("lock")).context("cannot lock the tools' folder")?;
    if lock.try_lock().is_err() {
        progress
            .during("waiting for another process that builds the programs", || lock.lock())
            .context("cannot lock the tools' folder")?;
    }
    Ok(lock)
}

/// Sets the versions that the programs report. By default they report v0.0.0-master, which fails the version checks of
/// Helm and Karmada. A module of Kubernetes alone has no Karmada.
fn linker_flags(module: &Path) -> Result<String> {
    let go_mod = read(&module.join("go.mod"))?;
    let version = |path: &str| {
        go_mod
            .lines()
            .filter_map(|line| line.trim().strip_prefix(path)?.strip_prefix(' '))
            .find_map(|rest| rest.split(' ').next().filter(|version| version.starts_with('v')))
    };
    let kubernetes = version("k8s.io/kubernetes").context("k8s.io/kubernetes is not in the tools' go.mod")?;
    let karmada = version("github.com/karmada-io/karmada")
        .map(|version| format!(" -X github.com/karmada-io/karmada/pkg/version.gitVersion={version}"))
        .unwrap_or_default();
    let mut numbers = kubernetes.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    Ok(format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={kubernetes} \
         -X k8s.io/component-base/version.gitMajor={major} -X k8s.io/component-base/version.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={kubernetes}{karmada}"
    ))
}

/// Sixteen hex digits: a hash of all inputs of the build.
fn key(module: &Path, linker_flags: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for name in ["go.mod", "go.sum"] {
        let named = "name the folder of the tools' go.mod with --tools-module, or --kubernetes-module";
        hash.update(read(&module.join(name)).context(named)?);
    }
    hash.update(FLAGS.join(" "));
    hash.update(linker_flags);
    let mut key = String::new();
    for byte in hash.finalize().iter().take(8) {
        write!(key, "{byte:02x}")?;
    }
    Ok(key)
}

fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    // The compiler and the linker would take much more memory by a value for the programs of tests.
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOGC");
    command
}

fn build(module: &Path, folder: &Path, linker_flags: &str, name: &str, package: &str) -> Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut command = go(module);
    command.arg("build").args(FLAGS).arg(linker_flags);
    command.arg("-o").arg(&new).arg(package);
    // On SIGINT, `go` stops its compilers and clears its work folder.
    run_blocking(command, Signal::SIGINT).with_context(|| {
        format!(
            "cannot build {name}: Go 1.25 or later must be in PATH, with access to a module proxy (GOPROXY) the first \
             time, 6 GB of disk for its caches and 4 GB of memory for its linker. The programs built so far stay: \
             mend the cause and start again"
        )
    })?;
    fs::rename(&new, folder.join(name)).with_context(|| format!("cannot rename {}", new.display()))
}

/// Copies Karmada's manifests from its module, so that they have the version of the programs.
fn manifests(module: &Path, folder: &Path) -> Result<()> {
    let mut list = go(module);
    list.args(["list", "-m", "-f", "{{.Dir}}", "github.com/karmada-io/karmada"]);
    let source = run_blocking(list, Signal::SIGINT).context("cannot find Karmada's module folder")?;
    let source = Path::new(source.trim());
    if !source.is_absolute() {
        bail!("Karmada's module is not in Go's module cache: run `go mod download` in {}", module.display());
    }
    let mut kustomize = Command::new(folder.join("kubectl"));
    kustomize.arg("kustomize").arg(source.join("charts/karmada/_crds"));
    let mut resources = run_blocking(kustomize, Signal::SIGKILL).context("cannot render Karmada's definitions")?;
    for name in ["admin-clusterrole-aggregation", "cluster-proxy-admin-rbac"] {
        resources.push_str("\n---\n");
        resources.push_str(&deployed(source, name)?);
    }
    write(&folder.join(KARMADA_RESOURCES), resources.as_bytes())?;
    // As a release of Karmada packs them: the folder `crds`, with an entry for each folder in it.
    archive(&source.join("charts/karmada"), "_crds", Some("s,^_crds,crds,"), &folder.join(KARMADA_CRDS))?;
    archive(&source.join("operator"), "config", None, &folder.join(KARMADA_OPERATOR))?;
    archive(&source.join("charts"), "karmada", None, &folder.join(KARMADA_CHART))?;
    write(&folder.join(KARMADA_WEBHOOKS), deployed(source, "webhook-configuration")?.as_bytes())
}

/// Packs a folder. `transform` is an expression of tar, which changes the names in it.
fn archive(parent: &Path, name: &str, transform: Option<&str>, target: &Path) -> Result<()> {
    let new = target.with_extension("new");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--mode=u+w"]);
    tar.args(transform.map(|expression| format!("--transform={expression}")));
    tar.arg("--file").arg(&new).arg("--directory").arg(parent).arg(name);
    run_blocking(tar, Signal::SIGKILL).with_context(|| format!("cannot pack {name} of Karmada"))?;
    fs::rename(&new, target).with_context(|| format!("cannot rename {}", new.display()))
}

fn deployed(source: &Path, name: &str) -> Result<String> {
    read(&source.join("artifacts/deploy").join(format!("{name}.yaml")))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_pinned_by_a_tool_line() -> Result<()> {
        let node_tools = TOOLS.into_iter().chain(HELM).chain(NODE_TOOLS).collect::<Vec<_>>();
        let mut modules = vec![(default_module(), node_tools), (registry_module(), REGISTRY.into())];
        for version in fs::read_dir(default_module().with_file_name("kubernetes"))? {
            modules.push((version?.path(), kubernetes_programs()));
        }
        for (module, tools) in modules {
            let go_mod = fs::read_to_string(module.join("go.mod"))?;
            let pinned: Vec<_> = go_mod.lines().map(str::trim).collect();
            for (name, package) in tools {
                assert!(pinned.contains(&package), "{name} is not pinned");
            }
        }
        Ok(())
    }

    /// A machine that has never built Helm starts federations too.
    #[test]
    fn a_federation_runs_only_programs_that_are_always_built() {
        let sources = [include_str!("join.rs"), include_str!("karmada.rs"), include_str!("nodes/kubelet.rs")].join("");
        let named =
            |call: &str| sources.split(call).skip(1).filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>();
        let named = [named("tools.join(\""), named("tool(node.index, \"")].concat();
        assert!(["karmadactl", "kubectl", "kubelet"].iter().all(|name| named.contains(name)), "{named:?}");
        let built = TOOLS.into_iter().chain(NODE_TOOLS).map(|(name, _)| name).collect::<Vec<_>>();
        let missing = named.iter().filter(|name| !built.contains(name)).collect::<Vec<_>>();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_programs_report_the_pinned_versions() -> Result<()> {
        let flags = linker_flags(&default_module())?;
        for part in ["version.gitVersion=v1.", "version.gitMajor=1 ", "karmada/pkg/version.gitVersion=v1."] {
            assert!(flags.contains(part), "{part} is not in {flags}");
        }
        Ok(())
    }

    #[test]
    fn the_key_changes_with_the_modules() -> Result<()> {
        let temporary = tempfile::tempdir()?;
        let folder = temporary.path();
        let go_mod = b"require (\n\tgithub.com/karmada-io/karmada v1.2.3\n\tk8s.io/kubernetes v1.9.0 // indirect\n)\n";
        write(&folder.join("go.mod"), go_mod)?;
        write(&folder.join("go.sum"), b"")?;
        let flags = linker_flags(folder)?;
        let before = key(folder, &flags)?;
        assert_eq!(before.len(), 16);
        write(&folder.join("go.sum"), b"other")?;
        assert_ne!(key(folder, &flags)?, before);
        assert_ne!(key(folder, PLAIN)?, key(folder, &flags)?);
        fs::remove_dir_all(folder)?;
        assert!(key(folder, &flags).is_err());
        Ok(())
    }
}
