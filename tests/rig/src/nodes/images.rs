//! Container images, made of files of this machine, without container daemon and registry. The cache folder keeps them
//! under a hash of all their inputs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::command::run_blocking;
use crate::layout::{cache, write};
use crate::nodes::containerd;
use crate::ports::try_lock;
use crate::progress::Progress;

pub(crate) mod programs;

/// The image of the process that holds the namespaces of a pod.
pub(crate) const PAUSE: &str = "rig.local/pause:1";
/// An image with a shell and its tools, for pods of tests.
pub const BUSYBOX: &str = "rig.local/busybox:1";
/// The image of ZooKeeper, named as in a registry, so that manifests work unchanged.
pub const ZOOKEEPER: &str = "docker.io/library/zookeeper:3.9.5";
/// The version to upgrade from: the patch before. If that loses writes, an older one.
pub const ZOOKEEPER_BEFORE: &str = "docker.io/library/zookeeper:3.9.4";
/// The image of mczk, named as in its chart.
pub const MCZK: &str = concat!("docker.io/library/mczk:", env!("CARGO_PKG_VERSION"));

const POM: &str = include_str!("../../../zookeeper/pom.xml");
const LOGBACK: &str = include_str!("zookeeper/logback.xml");
const SERVER: &str = include_str!("zookeeper/zkServer.sh");
const CLIENT: &str = include_str!("zookeeper/zkCli.sh");
/// The modules of Java for ZooKeeper and for its diagnosis.
const JAVA_MODULES: &str = "java.base,java.logging,java.management,java.naming,java.security.jgss,java.security.sasl,\
                            java.xml,java.desktop,java.sql,jdk.crypto.ec,jdk.management,jdk.management.agent,\
                            jdk.naming.dns,jdk.security.auth,jdk.unsupported,jdk.httpserver,jdk.jcmd";
/// The user of the official ZooKeeper image.
const ZOOKEEPER_USER: u32 = 1000;
/// Change it when this file makes other images of the same inputs.
const REVISION: &str = "5";
/// The number of sets of images that are kept.
const KEPT: usize = 3;

/// The configuration of an image.
struct About<'a> {
    tags: &'a [&'a str],
    entrypoint: Vec<String>,
    command: Vec<String>,
    env: Vec<String>,
    user: String,
    workdir: String,
}

/// The containerd folder for all nodes, with the images of pause, busybox and ZooKeeper. Blocks, the first time for half a
/// minute with a download of 20 MB.
pub(crate) fn golden(progress: &Progress) -> Result<PathBuf> {
    let folder = cache()?.join("images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let busybox = program("busybox")?;
    let (jlink, this) = (program("jlink")?, std::env::current_exe()?);
    // The program is only a launcher: a file of the JDK holds the version.
    let release = jlink.canonicalize()?.parent().and_then(Path::parent).map(|jdk| jdk.join("release"));
    let java = release.and_then(|file| fs::read(file).ok()).unwrap_or_default();
    let recipe = [ZOOKEEPER, ZOOKEEPER_BEFORE, POM, LOGBACK, SERVER, CLIENT, JAVA_MODULES, REVISION].join("\n");
    let key = key(&[recipe.as_bytes(), &fs::read(&busybox)?, &java]);
    let target = folder.join(format!("{key}.root"));
    if target.exists() {
        return Ok(target);
    }
    let lock = lock(&folder, progress)?;
    if target.exists() {
        return Ok(target);
    }
    progress.during("making images of ZooKeeper and busybox, only the first time", || {
        let work = Work::new(&folder)?;
        let mut archives = vec![pause(&work, &busybox)?, shell(&work, &busybox)?];
        let base = base(&work, &busybox, &jlink, &this)?;
        for tag in [ZOOKEEPER_BEFORE, ZOOKEEPER] {
            archives.push(zookeeper(&work, &base, tag)?);
        }
        containerd::golden(&archives, &target)?;
        drop(work);
        prune(&folder, "root", &target)
    })?;
    drop(lock);
    Ok(target)
}

/// An image archive of a program `mczk`, as `tag`. Blocks, the first time for about 2 s.
pub(crate) fn mczk(binary: &Path, tag: &str, progress: &Progress) -> Result<PathBuf> {
    let folder = cache()?.join("images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let content = fs::read(binary).with_context(|| format!("cannot read {}: build it", binary.display()))?;
    let target = folder.join(format!("{}.mczk", key(&[&content, tag.as_bytes(), REVISION.as_bytes()])));
    let lock = lock(&folder, progress)?;
    if !target.exists() {
        let work = Work::new(&folder)?;
        let root = work.root("mczk")?;
        fs::create_dir_all(root.join("bin"))?;
        accounts(&root)?;
        let inside = root.join("bin/mczk");
        fs::copy(binary, &inside)?;
        // Debug information is most of a debug build. Without the program `strip`, the image is only larger.
        let mut strip = Command::new("strip");
        strip.arg(&inside);
        let _ = run_blocking(strip, Signal::SIGKILL);
        libraries(&root, &[inside])?;
        let about = About {
            tags: &[tag],
            entrypoint: vec!["/bin/mczk".into()],
            command: vec![],
            env: vec!["PATH=/bin".into()],
            user: "65532:65532".into(),
            workdir: "/".into(),
        };
        fs::rename(pack(&work, &[&root], &about)?, &target)?;
        prune(&folder, "mczk", &target)?;
    }
    drop(lock);
    Ok(target)
}

fn lock(folder: &Path, progress: &Progress) -> Result<fs::File> {
    let path = folder.join("lock");
    if let Some(lock) = try_lock(&path)? {
        return Ok(lock);
    }
    let file = fs::File::options().append(true).open(&path)?;
    progress
        .during("waiting for another process that makes images", || file.lock())
        .context("cannot lock the images' folder")?;
    Ok(file)
}

/// Removes old images. It keeps the latest ones, because a rig may use them.
fn prune(folder: &Path, extension: &str, newest: &Path) -> Result<()> {
    let mut old = vec![];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) && path != newest {
            old.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT - 1) {
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// A work folder, removed with this value.
struct Work(PathBuf);

impl Work {
    fn new(parent: &Path) -> Result<Self> {
        let path = parent.join("work");
        // A killed process left it; a running one would hold the lock.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    fn root(&self, name: &str) -> Result<PathBuf> {
        let root = self.0.join(name);
        fs::create_dir_all(&root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        Ok(root)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pause(work: &Work, busybox: &Path) -> Result<PathBuf> {
    let root = work.root("pause")?;
    fs::copy(busybox, root.join("busybox"))?;
    // containerd kills it, so it may ignore SIGTERM.
    let entrypoint = ["/busybox", "sleep", "2000000000"].map(str::to_owned).into();
    let about =
        About { tags: &[PAUSE], entrypoint, command: vec![], env: vec![], user: String::new(), workdir: "/".into() };
    pack(work, &[&root], &about)
}

fn shell(work: &Work, busybox: &Path) -> Result<PathBuf> {
    let root = work.root("busybox")?;
    busybox_into(&root, busybox)?;
    let about = About {
        tags: &[BUSYBOX],
        entrypoint: vec![],
        command: vec!["sh".into()],
        env: vec!["PATH=/bin".into()],
        user: String::new(),
        workdir: "/".into(),
    };
    pack(work, &[&root], &about)
}

fn busybox_into(root: &Path, busybox: &Path) -> Result<()> {
    for folder in ["bin", "tmp", "proc", "sys", "dev", "root"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::copy(busybox, root.join("bin/busybox"))?;
    let mut list = Command::new(busybox);
    list.arg("--list");
    for name in run_blocking(list, Signal::SIGKILL)?.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name))?;
    }
    accounts(root)
}

fn accounts(root: &Path) -> Result<()> {
    write(
        &root.join("etc/passwd"),
        b"root:x:0:0:root:/root:/bin/sh\nzookeeper:x:1000:1000::/data:/bin/sh\nmczk:x:65532:65532::/:/bin/false\n",
    )?;
    write(&root.join("etc/group"), b"root:x:0:\nzookeeper:x:1000:\nmczk:x:65532:\n")?;
    write(&root.join("etc/nsswitch.conf"), b"hosts: files dns\n")?;
    for name in ["passwd", "group", "nsswitch.conf"] {
        fs::set_permissions(root.join("etc").join(name), fs::Permissions::from_mode(0o644))?;
    }
    fs::set_permissions(root.join("etc"), fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The layer below both versions of ZooKeeper: a shell, Java, and the folders and the user of the official image. `rust` is
/// any program in Rust: mczk runs in this image too, and needs the same libraries.
fn base(work: &Work, busybox: &Path, jlink: &Path, rust: &Path) -> Result<PathBuf> {
    let root = work.root("base")?;
    busybox_into(&root, busybox)?;
    let jre = root.join("jre");
    let mut command = Command::new(jlink);
    command.args(["--add-modules", JAVA_MODULES, "--strip-debug", "--no-header-files", "--no-man-pages", "--output"]);
    command.arg(&jre);
    run_blocking(command, Signal::SIGKILL)
        .context("cannot make a Java runtime: a JDK of version 17 or later is needed")?;
    let mut programs = vec![jre.join("bin/java"), rust.to_owned()];
    shared_objects(&jre.join("lib"), &mut programs)?;
    libraries(&root, &programs)?;
    for folder in ["conf", "data", "datalog", "logs"] {
        fs::create_dir_all(root.join(folder))?;
        chown(root.join(folder), Some(ZOOKEEPER_USER), Some(ZOOKEEPER_USER))?;
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o755))?;
    }
    Ok(root)
}

/// An image laid out like the official one: the folder of the binary package with its scripts.
fn zookeeper(work: &Work, base: &Path, tag: &str) -> Result<PathBuf> {
    let version = tag.rsplit(':').next().unwrap_or_default();
    let root = work.root(&format!("zookeeper-{version}"))?;
    let folder = format!("apache-zookeeper-{version}-bin");
    let home = root.join(&folder);
    for folder in ["bin", "conf", "lib"] {
        fs::create_dir_all(home.join(folder))?;
    }
    let pom = work.0.join("pom.xml");
    write(&pom, POM.as_bytes())?;
    let mut mvn = Command::new("mvn");
    mvn.args(["-B", "-q", "-f"]).arg(&pom).arg(format!("-Dzookeeper={version}"));
    mvn.arg("dependency:copy-dependencies");
    mvn.arg(format!("-DoutputDirectory={}", home.join("lib").display()));
    run_blocking(mvn, Signal::SIGTERM).context(
        "cannot get ZooKeeper's jars: the programs mvn and java must be in PATH (`make prerequisites-nodes`), with access \
         to a Maven repository the first time",
    )?;
    for (path, content, mode) in
        [("bin/zkServer.sh", SERVER, 0o755), ("bin/zkCli.sh", CLIENT, 0o755), ("conf/logback.xml", LOGBACK, 0o644)]
    {
        write(&home.join(path), content.as_bytes())?;
        fs::set_permissions(home.join(path), fs::Permissions::from_mode(mode))?;
    }
    let about = About {
        tags: &[tag],
        entrypoint: vec![],
        command: vec!["zkServer.sh".into(), "start-foreground".into()],
        env: [
            &format!("PATH=/jre/bin:/bin:/{folder}/bin"),
            "JAVA_HOME=/jre",
            "ZOO_CONF_DIR=/conf",
            "ZOO_DATA_DIR=/data",
            "ZOO_DATA_LOG_DIR=/datalog",
            "ZOO_LOG_DIR=/logs",
            "ZOOCFGDIR=/conf",
            "LANG=C.UTF-8",
        ]
        .map(str::to_owned)
        .into(),
        user: format!("{ZOOKEEPER_USER}:{ZOOKEEPER_USER}"),
        workdir: format!("/{folder}"),
    };
    pack(work, &[base, &root], &about)
}

fn shared_objects(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            shared_objects(&entry.path(), found)?;
        } else if entry.path().extension().is_some_and(|e| e == "so") {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Copies the shared libraries of the programs to their usual paths.
fn libraries(root: &Path, programs: &[PathBuf]) -> Result<()> {
    let mut needed = BTreeSet::new();
    for program in programs {
        let mut ldd = Command::new("ldd");
        ldd.arg(program);
        // ldd fails for a static program, which needs none.
        let listing = run_blocking(ldd, Signal::SIGKILL).unwrap_or_default();
        needed.extend(libraries_in(&listing).filter(|path| !path.starts_with(root)));
    }
    for path in needed {
        let target = root.join(path.strip_prefix("/")?);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
    }
    Ok(())
}

/// The files in the output of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x...)` or `/lib64/ld.so (0x...)`.
fn libraries_in(listing: &str) -> impl Iterator<Item = PathBuf> + '_ {
    listing.lines().filter_map(|line| {
        let (text, _) = line.split_once(" (0x")?;
        let path = text.rsplit(' ').next()?.trim();
        path.starts_with('/').then(|| PathBuf::from(path))
    })
}

/// An archive of one image in the format of `docker save`, with a layer for each folder.
fn pack(work: &Work, roots: &[&Path], about: &About) -> Result<PathBuf> {
    let named = |root: &Path| root.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = roots.last().and_then(|root| named(root)).context("an image has a layer with a name")?;
    let folder = work.0.join(format!("{name}-archive"));
    fs::create_dir_all(&folder)?;
    let (mut layers, mut digests) = (vec![], vec![]);
    for root in roots {
        let layer = format!("{}.tar", named(root).context("a root has a name")?);
        let mut tar = Command::new("tar");
        tar.args(["--create", "--numeric-owner", "--sort=name", "--mtime=@0", "--file"]);
        tar.arg(folder.join(&layer)).arg("--directory").arg(root).arg(".");
        run_blocking(tar, Signal::SIGKILL)?;
        digests.push(hex(&Sha256::digest(fs::read(folder.join(&layer))?), 32));
        layers.push(layer);
    }
    write(&folder.join("config.json"), &serde_json::to_vec(&config(about, &digests)?)?)?;
    let manifest = json!([{"Config": "config.json", "RepoTags": about.tags, "Layers": layers}]);
    write(&folder.join("manifest.json"), &serde_json::to_vec(&manifest)?)?;
    let archive = work.0.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--file"]).arg(&archive).arg("--directory").arg(&folder);
    tar.args(["config.json", "manifest.json"]).args(&layers);
    run_blocking(tar, Signal::SIGKILL)?;
    fs::remove_dir_all(folder)?;
    Ok(archive)
}

fn config(about: &About, layers: &[String]) -> Result<Value> {
    let layers: Vec<String> = layers.iter().map(|layer| format!("sha256:{layer}")).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no container images for {other}"),
    };
    Ok(json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": about.entrypoint,
            "Cmd": about.command,
            "Env": about.env,
            "User": about.user,
            "WorkingDir": about.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
    }))
}

/// Sixteen hex digits: a hash of all parts.
fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize(), 8)
}

fn hex(bytes: &[u8], length: usize) -> String {
    bytes.iter().take(length).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The file of a program in PATH.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
        .with_context(|| format!("{name} is not in PATH"))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
                       \tlibgone.so => not found\n\t/lib64/ld-linux.so.2 (0x00007f)\n\tstatically linked\n";
        let found: Vec<_> = libraries_in(listing).collect();
        assert_eq!(found, [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld-linux.so.2")]);
    }

    #[test]
    fn the_key_tells_parts_apart() {
        assert_eq!(key(&[b"ab", b"c"]).len(), 16);
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
    }

    #[test]
    fn an_image_says_how_it_starts() -> Result<()> {
        let about = About {
            tags: &[PAUSE],
            entrypoint: vec!["/x".into()],
            command: vec![],
            env: vec![],
            user: "1:1".into(),
            workdir: "/".into(),
        };
        let config = config(&about, &["00ff".to_owned()])?;
        assert_eq!(config["rootfs"]["diff_ids"][0], "sha256:00ff");
        assert_eq!(config["config"]["Entrypoint"][0], "/x");
        Ok(())
    }
}
