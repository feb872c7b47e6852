//! The disk as a folder of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fuser::{BackgroundSession, Config, Errno, FileAttr, FileType, INodeNo, MountOption};

use crate::{
    recording::{Entry, Inode, Nodes, Operation, ROOT, Recording},
    requests::Requests,
    tree::Tree,
};

/// A disk that is mounted until the value is dropped.
pub struct Mounted {
    folder: PathBuf,
    disk: Shared,
    session: Option<BackgroundSession>,
}

/// The disk, for requests and for the test.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Disk>>);

/// What programs see, and what they did.
pub(crate) struct Disk {
    pub(crate) nodes: Nodes,
    recording: Recording,
    next: Inode,
    modes: BTreeMap<Inode, u16>,
    modified: BTreeMap<Inode, SystemTime>,
    /// Number of operations after which nothing answers any more.
    freezes_after: Option<usize>,
    /// Freezes when a file gets this name for the last of so many times.
    freezes_at: Option<(String, usize)>,
    /// Name of files whose bytes cannot be read.
    broken: Option<String>,
    /// Size in bytes.
    size: u64,
}

/// Size of a disk without a limit: 16 GiB.
const SIZE: u64 = 16 << 30;

impl Mounted {
    /// Mounts a disk with durable content on an existing folder. It freezes after the given number of operations.
    ///
    /// # Panics
    /// If this machine cannot mount a FUSE file system. A test must not pass without it.
    #[must_use]
    pub fn new(folder: &Path, content: &Tree, freezes_after: Option<usize>) -> Self {
        let nodes = content.nodes();
        let disk = Disk {
            next: ROOT + 1 + content.0.len() as u64,
            recording: Recording::new(nodes.clone()),
            nodes,
            modes: BTreeMap::new(),
            modified: BTreeMap::new(),
            freezes_after,
            freezes_at: None,
            broken: None,
            size: SIZE,
        };
        let disk = Shared(Arc::new(Mutex::new(disk)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("mczk-disk".to_owned()), MountOption::NoAtime];
        let session = fuser::spawn_mount(Requests(disk.clone()), folder, &config).unwrap_or_else(|error| {
            panic!(
                "cannot mount a FUSE file system on {}: {error}. This test needs /dev/fuse, and root or the program \
                 fusermount3 (Debian's package fuse3)",
                folder.display()
            )
        });
        Self { folder: folder.to_owned(), disk, session: Some(session) }
    }

    /// Everything that programs did so far.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.disk.lock().recording.clone()
    }

    /// Number of operations so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.disk.lock().recording.operations.len()
    }

    /// True if nothing answers any more.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.disk.lock().is_frozen()
    }

    /// Leaves so many free bytes, or all of a large disk.
    pub fn leave(&self, free: Option<u64>) {
        let mut disk = self.disk.lock();
        disk.size = free.map_or(SIZE, |free| disk.nodes.size() + free);
    }

    /// The power goes off when a file gets this name for the `times`th time.
    pub fn freeze_at(&self, name: &str, times: usize) {
        self.disk.lock().freezes_at = Some((name.to_owned(), times));
    }

    /// The power goes off now.
    pub fn freeze(&self) {
        self.disk.lock().freezes_after = Some(0);
    }

    /// The bytes of files with this name cannot be read, as on a broken sector. With `None` all can again.
    pub fn break_file(&self, name: Option<&str>) {
        self.disk.lock().broken = name.map(str::to_owned);
    }

    /// Records that a program informed others of something.
    pub fn note(&self, number: u64) {
        self.disk.lock().recording.operations.push(Operation::Note(number));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing waits for the end of the session: a mount namespace of another process may hold a copy of the mount.
        drop(self.session.take());
        // A process of a failed test may use the disk, which then goes with its last user.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|folder| Path::new(folder) == self.folder)) {
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request, unless the disk is frozen.
    pub(crate) fn answer<T>(&self, request: impl FnOnce(&mut Disk) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut disk = self.lock();
        if disk.is_frozen() { Err(Errno::EIO) } else { request(&mut disk) }
    }
}

impl Disk {
    fn is_frozen(&self) -> bool {
        self.freezes_after.is_some_and(|count| self.recording.operations.len() >= count)
    }

    /// Size and free bytes.
    pub(crate) fn space(&self) -> (u64, u64) {
        (self.size, self.size.saturating_sub(self.nodes.size()))
    }

    /// Bytes of a file.
    pub(crate) fn read(&mut self, inode: Inode, offset: u64, size: u64) -> Result<Vec<u8>, Errno> {
        let mut folders = self.nodes.folders.values();
        let is_broken = self.broken.as_ref().is_some_and(|name| folders.any(|names| names.get(name) == Some(&inode)));
        if is_broken { Err(Errno::EIO) } else { Ok(self.nodes.file(inode).read(offset, size)) }
    }

    /// Refuses a file that grows to `size` if there is no room.
    pub(crate) fn check_room(&mut self, inode: Inode, size: u64) -> Result<(), Errno> {
        let growth = size.saturating_sub(self.nodes.file(inode).size());
        if growth > self.space().1 { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Does what a program asks for.
    pub(crate) fn record(&mut self, operation: Operation) {
        let now = SystemTime::now();
        match &operation {
            Operation::Entries(entries) => {
                self.modified.extend(entries.iter().map(|entry| (entry.folder, now)));
                self.count_names(entries);
            }
            Operation::Write { inode, .. } | Operation::Resize { inode, .. } => {
                self.modified.insert(*inode, now);
            }
            Operation::Sync(_) | Operation::Note(_) => {}
        }
        self.nodes.apply(&operation);
        self.recording.operations.push(operation);
    }

    fn count_names(&mut self, entries: &[Entry]) {
        let Some((name, times)) = &mut self.freezes_at else { return };
        *times -= entries.iter().filter(|entry| entry.inode.is_some() && entry.name == *name).count();
        if *times == 0 {
            self.freezes_at = None;
            self.freezes_after = Some(0);
        }
    }

    /// Creates a file or a folder.
    pub(crate) fn create(
        &mut self,
        folder: Inode,
        name: String,
        mode: u32,
        is_folder: bool,
    ) -> Result<FileAttr, Errno> {
        if self.names(folder)?.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        let inode = self.next;
        self.next += 1;
        self.modes.insert(inode, u16::try_from(mode & 0o7777).unwrap_or_default());
        if is_folder {
            self.nodes.folders.insert(inode, BTreeMap::new());
            self.recording.folders.push(inode);
        }
        self.record(Operation::Entries(vec![Entry { folder, name, inode: Some(inode) }]));
        self.attributes(inode)
    }

    /// The names in a folder.
    pub(crate) fn names(&self, folder: Inode) -> Result<&BTreeMap<String, Inode>, Errno> {
        self.nodes.folders.get(&folder).ok_or(Errno::ENOENT)
    }

    /// What a name stands for.
    pub(crate) fn named(&self, folder: Inode, name: &str) -> Result<Inode, Errno> {
        self.names(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(crate) fn is_folder(&self, inode: Inode) -> bool {
        self.nodes.folders.contains_key(&inode)
    }

    pub(crate) fn set_modified(&mut self, inode: Inode, time: SystemTime) {
        self.modified.insert(inode, time);
    }

    pub(crate) fn set_mode(&mut self, inode: Inode, mode: u32) {
        self.modes.insert(inode, u16::try_from(mode & 0o7777).unwrap_or_default());
    }

    pub(crate) fn attributes(&mut self, inode: Inode) -> Result<FileAttr, Errno> {
        let is_folder = self.is_folder(inode);
        if !is_folder && inode >= self.next {
            return Err(Errno::ENOENT);
        }
        let size = if is_folder { 0 } else { self.nodes.file(inode).size() };
        let time = self.modified.get(&inode).copied().unwrap_or(SystemTime::UNIX_EPOCH);
        let mode = self.modes.get(&inode).copied().unwrap_or(if is_folder { 0o755 } else { 0o644 });
        Ok(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: mode,
            nlink: if is_folder { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}
