//! `mczk install FOLDER`: copies the program itself into a folder. The image of mczk holds no other program that could.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

/// Copies under another name and renames, so that no incomplete copy ever has the name `mczk`.
///
/// # Errors
/// If the folder cannot be written to.
pub(super) fn copy_to(folder: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let (partial, complete) = (folder.join("mczk.part"), folder.join("mczk"));
    let copy = || -> std::io::Result<()> {
        fs::copy(&program, &partial)?;
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o755))?;
        fs::rename(&partial, &complete)
    };
    copy().with_context(|| format!("cannot copy this program to {}", complete.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_copied_program_is_executable() {
        let folder = tempfile::tempdir().unwrap();
        copy_to(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join("mczk")).unwrap().permissions().mode();
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!((mode & 0o777, files), (0o755, 1));
    }
}
