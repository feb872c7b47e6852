//! Images of programs that the tools module builds, under the names that an installer of Karmada pulls.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{About, REVISION, Work, busybox_into, key, libraries, lock, pack, program, prune};
use crate::layout::cache;
use crate::progress::Progress;

/// An image archive with a shell and these programs, under each of these names. A program that the folder lacks is
/// one of this machine. The official images of etcd and Karmada have their programs in different folders: this one has
/// all of them in both. Blocks, the first time for some seconds for each 100 MB.
pub(crate) fn image(folder: &Path, programs: &[String], names: &[String], progress: &Progress) -> Result<PathBuf> {
    let images = cache()?.join("images");
    fs::create_dir_all(&images).with_context(|| format!("cannot make {}", images.display()))?;
    let target = images.join(format!("{}.programs", key_of(folder, programs, names)));
    let lock = lock(&images, progress)?;
    if !target.exists() {
        let what = format!("making an image of {}, only the first time", programs.join(", "));
        progress.during(&what, || make(&images, folder, programs, names, &target))?;
    }
    drop(lock);
    Ok(target)
}

/// The name of the folder is a hash of what its programs are built from.
fn key_of(folder: &Path, programs: &[String], names: &[String]) -> String {
    let folder = folder.display().to_string();
    key(&[folder.as_bytes(), programs.join(" ").as_bytes(), names.join(" ").as_bytes(), REVISION.as_bytes()])
}

fn make(images: &Path, folder: &Path, programs: &[String], names: &[String], target: &Path) -> Result<()> {
    let work = Work::new(images)?;
    let root = work.root("programs")?;
    busybox_into(&root, &program("busybox")?)?;
    let mut files = vec![];
    for name in programs {
        let tool = folder.join(name);
        let file = if tool.exists() { tool } else { program(name)? };
        fs::copy(&file, root.join("bin").join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        files.push(file);
    }
    libraries(&root, &files)?;
    fs::create_dir_all(root.join("usr/local"))?;
    symlink("/bin", root.join("usr/local/bin"))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let about = About {
        tags: &names,
        entrypoint: vec![],
        command: vec!["sh".into()],
        env: vec!["PATH=/bin".into()],
        user: String::new(),
        workdir: "/".into(),
    };
    fs::rename(pack(&work, &[&root], &about)?, target)?;
    prune(images, "programs", target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_or_program_is_another_image() {
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let key = |programs: &[&str], names: &[&str]| key_of(Path::new("/tools/ab"), &all(programs), &all(names));
        assert_eq!(key(&["etcd"], &["r/etcd:1"]), key(&["etcd"], &["r/etcd:1"]));
        assert_ne!(key(&["etcd"], &["r/etcd:1"]), key(&["etcd"], &["r/etcd:2"]));
        assert_ne!(key(&["etcd", "r/etcd:1"], &[]), key(&["etcd"], &["r/etcd:1"]));
    }
}
