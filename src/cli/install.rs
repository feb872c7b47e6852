//! `mczk install`: copies the program itself into a folder. The image of mczk holds no other program that could.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::error::Error;

/// Copies this program into a folder, as `mczk`; the init container of a ZooKeeper pod calls it
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// Existing folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Install {
    /// Copies under another name and renames, so that no incomplete copy ever has the name.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub(crate) fn run(self) -> Result<(), Error> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let (partial, complete) = (self.folder.join("mczk.part"), self.folder.join("mczk"));
        let copy = || -> std::io::Result<()> {
            fs::copy(&program, &partial)?;
            fs::set_permissions(&partial, fs::Permissions::from_mode(0o755))?;
            fs::rename(&partial, &complete)
        };
        copy().with_context(|| format!("cannot copy this program to {}", complete.display()))?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_program_is_executable() {
        let folder = std::env::temp_dir().join(format!("mczk-install-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Install { folder: folder.clone() }.run().unwrap();
        let mode = fs::metadata(folder.join("mczk")).unwrap().permissions().mode();
        let files = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((mode & 0o777, files), (0o755, 1));
    }
}
