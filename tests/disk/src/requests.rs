//! The requests of the kernel.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::{
    mount::{Disk, Shared},
    recording::{Entry, Inode, Operation},
};

/// The kernel asks for every attribute again: it may not answer for a frozen disk.
const NEVER: Duration = Duration::ZERO;
/// Size of a block.
const BLOCK: u32 = 4096;

/// Answers the requests of the kernel.
pub(crate) struct Requests(pub(crate) Shared);

fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::EINVAL)
}

impl Requests {
    fn entry(&self, reply: ReplyEntry, request: impl FnOnce(&mut Disk) -> Result<FileAttr, Errno>) {
        match self.0.answer(request) {
            Ok(attributes) => reply.entry(&NEVER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn empty(&self, reply: ReplyEmpty, request: impl FnOnce(&mut Disk) -> Result<(), Errno>) {
        match self.0.answer(request) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, reply: ReplyOpen) {
        match self.0.answer(|_| Ok(())) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn remove(&self, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, |disk| {
            let name = text(name)?;
            let inode = disk.named(folder.0, &name)?;
            if disk.is_folder(inode) && !disk.names(inode)?.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            disk.record(Operation::Entries(vec![Entry { folder: folder.0, name, inode: None }]));
            Ok(())
        });
    }

    fn sync(&self, inode: Inode, reply: ReplyEmpty) {
        self.empty(reply, |disk| {
            disk.record(Operation::Sync(inode));
            Ok(())
        });
    }
}

impl Filesystem for Requests {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, |disk| {
            let inode = disk.named(parent.0, &text(name)?)?;
            disk.attributes(inode)
        });
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.answer(|disk| disk.attributes(inode.0)) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = self.0.answer(|disk| {
            if let Some(size) = size {
                disk.check_room(inode.0, size)?;
                disk.record(Operation::Resize { inode: inode.0, size });
            }
            if let Some(mode) = mode {
                disk.set_mode(inode.0, mode);
            }
            match modified {
                Some(TimeOrNow::SpecificTime(time)) => disk.set_modified(inode.0, time),
                Some(TimeOrNow::Now) => disk.set_modified(inode.0, SystemTime::now()),
                None => {}
            }
            disk.attributes(inode.0)
        });
        match set {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.entry(reply, |disk| disk.create(parent.0, text(name)?, mode & !umask, true));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, _: i32, reply: ReplyCreate) {
        match self.0.answer(|disk| disk.create(parent.0, text(name)?, mode & !umask, false)) {
            Ok(attributes) => reply.created(&NEVER, &attributes, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.empty(reply, |disk| {
            let (name, new_name) = (text(name)?, text(new_name)?);
            let inode = disk.named(parent.0, &name)?;
            let target = disk.named(new_parent.0, &new_name).ok();
            if target.is_some() && flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            if target.is_some_and(|target| disk.names(target).is_ok_and(|names| !names.is_empty())) {
                return Err(Errno::ENOTEMPTY);
            }
            let gone = Entry { folder: parent.0, name, inode: None };
            let come = Entry { folder: new_parent.0, name: new_name, inode: Some(inode) };
            disk.record(Operation::Entries(vec![gone, come]));
            Ok(())
        });
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.open(reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.open(reply);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.answer(|disk| disk.read(inode.0, offset, size.into())) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.0.answer(|disk| {
            disk.check_room(inode.0, offset + data.len() as u64)?;
            disk.record(Operation::Write { inode: inode.0, offset, bytes: data.to_vec() });
            u32::try_from(data.len()).map_err(|_| Errno::EINVAL)
        });
        match written {
            Ok(length) => reply.written(length),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.empty(reply, |_| Ok(()));
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(inode.0, reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(inode.0, reply);
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let names = self.0.answer(|disk| {
            let names = disk.names(inode.0)?.clone();
            Ok(names.into_iter().map(|(name, inode)| (name, inode, disk.is_folder(inode))).collect::<Vec<_>>())
        });
        let names = match names {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        for (next, (name, inode, is_folder)) in (1..).zip(names).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.0.answer(|disk| Ok(disk.space())) {
            Ok((size, free)) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                reply.statfs(blocks(size), blocks(free), blocks(free), 1 << 20, 1 << 20, BLOCK, 255, BLOCK);
            }
            Err(error) => reply.error(error),
        }
    }
}
