//! `mczk install`: copies the program itself into a folder. The image of mczk holds nothing else that could.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::error::Error;

/// Copies this program into a folder, as `mczk`: what the init container of a server's pod does.
#[derive(Debug, Args)]
pub struct Install {
    /// The folder; it must exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Install {
    /// Copies it under another name and renames it, so that nobody ever sees a part of it.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn run(self) -> Result<(), Error> {
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        let (part, whole) = (self.folder.join("mczk.part"), self.folder.join("mczk"));
        let copy = || -> std::io::Result<()> {
            fs::copy(&own, &part)?;
            fs::set_permissions(&part, fs::Permissions::from_mode(0o755))?;
            fs::rename(&part, &whole)
        };
        copy().with_context(|| format!("cannot copy this program to {}", whole.display()))?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_can_be_run() {
        let folder = std::env::temp_dir().join(format!("mczk-install-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Install { folder: folder.clone() }.run().unwrap();
        let mode = fs::metadata(folder.join("mczk")).unwrap().permissions().mode();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((mode & 0o777, left), (0o755, 1));
    }
}
