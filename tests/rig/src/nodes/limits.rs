//! The one setting of the whole machine that a rig with nodes changes, for as long as it lives: how many inotify instances
//! a user may have. Every API server, controller and kubelet takes several, and 128, a common limit, is not enough for five
//! nodes beside another rig: then some component ends with "too many open files", each time another one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::progress::Progress;

const INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";
const NEEDED: u32 = 1024;

/// The limit, if it is too low.
pub(crate) fn look() -> Result<Option<u32>> {
    Ok(Some(read()?).filter(|limit| *limit < NEEDED))
}

/// Raises the limit that [`look`] found too low.
pub(crate) fn raise(before: Option<u32>, progress: &Progress) {
    if let Some(before) = before
        && fs::write(INSTANCES, NEEDED.to_string()).is_err()
    {
        // A container that this runs in may not be allowed to.
        progress.tell(format!(
            "the machine allows {before} inotify instances and does not let that be changed: if components end with \"too \
             many open files\", `sysctl fs.inotify.max_user_instances={NEEDED}` outside helps"
        ));
    }
}

/// Puts the limit back, unless somebody else has changed it.
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
