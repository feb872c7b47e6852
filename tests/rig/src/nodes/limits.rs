//! The limit of inotify instances of a user: the only setting of the whole machine that a rig with nodes changes, until it
//! ends. Every API server, controller and kubelet needs several. With 128, a common limit, five nodes beside another rig
//! fail: some component ends with "too many open files".

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::progress::Progress;

const INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";
const NEEDED: u32 = 1024;

/// The limit, if it is too low.
pub(crate) fn too_low() -> Result<Option<u32>> {
    Ok(Some(read()?).filter(|limit| *limit < NEEDED))
}

/// Raises a limit that is [`too_low`].
pub(crate) fn raise(before: Option<u32>, progress: &Progress) {
    if let Some(before) = before
        && fs::write(INSTANCES, NEEDED.to_string()).is_err()
    {
        // In a container it may be forbidden.
        progress.print(format!(
            "the limit of inotify instances is {before} and cannot be raised here: if components end with \"too many open \
             files\", run `sysctl fs.inotify.max_user_instances={NEEDED}` outside the container"
        ));
    }
}

/// Restores the limit, unless another process has changed it.
pub(crate) fn restore(before: Option<u32>) -> Result<()> {
    match before {
        Some(before) if read()? == NEEDED => {
            fs::write(INSTANCES, before.to_string()).with_context(|| format!("cannot write {INSTANCES}"))
        }
        _ => Ok(()),
    }
}

fn read() -> Result<u32> {
    let path = Path::new(INSTANCES);
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {INSTANCES}"))?;
    text.trim().parse().with_context(|| format!("no number in {INSTANCES}"))
}
