//! The FUSE file system: a directory with one file, `disk`, whose data is in a backing file on
//! tmpfs.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::DaemonState;
use super::requests::PendingFlush;

const DISK: INodeNo = INodeNo(2);
/// Cache time of attributes and entries: only the file's data changes, and only the kernel
/// changes it.
const FOREVER: Duration = Duration::from_secs(1 << 30);
const MAX_WRITE: u32 = 1 << 20;

pub(super) struct OneFile {
    shared: Arc<DaemonState>,
    wanted: Option<bool>,
    /// Kept open for as long as the kernel may use the id.
    backing_id: Mutex<Option<BackingId>>,
}

impl OneFile {
    pub(super) fn new(shared: Arc<DaemonState>, wanted: Option<bool>) -> Self {
        Self { shared, wanted, backing_id: Mutex::new(None) }
    }

    /// Requests passthrough from the kernel (6.9 and later): data then goes straight to the
    /// backing file.
    fn offer_passthrough(&self, config: &mut KernelConfig) -> io::Result<bool> {
        if self.wanted == Some(false) || self.shared.store.passable().is_none() {
            return Ok(false);
        }
        let able = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        if !able && self.wanted == Some(true) {
            return Err(io::Error::other("this kernel has no FUSE passthrough (Linux 6.9)"));
        }
        Ok(able)
    }

    fn open_passthrough(&self, reply: ReplyOpen) {
        let mut id = self.backing_id.lock().unwrap_or_else(PoisonError::into_inner);
        let backing = self.shared.store.passable();
        if let (None, Some(backing)) = (&*id, backing) {
            match reply.open_backing(backing) {
                Ok(opened) => *id = Some(opened),
                Err(error) => {
                    eprintln!("cannot open the backing file for passthrough: {error}");
                    return reply.error(Errno::from(error));
                }
            }
        }
        if let Some(id) = id.as_ref() {
            reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), id);
        }
    }

    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let (kind, size, perm) = match ino {
            DISK => (FileType::RegularFile, self.shared.size, 0o600),
            _ => (FileType::Directory, 0, 0o700),
        };
        let long_ago = UNIX_EPOCH;
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: long_ago,
            mtime: long_ago,
            ctime: long_ago,
            crtime: long_ago,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let useful =
            InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_MAX_PAGES;
        // Unsupported capabilities are skipped. Add each one separately: one refused
        // capability rejects the whole call.
        for flag in useful.iter() {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(64);
        let passthrough = self.offer_passthrough(config)?;
        let _ = self.shared.passthrough.set(passthrough);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == "disk" {
            reply.entry(&FOREVER, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The kernel updates the times while it writes; no program reads them.
        reply.attr(&FOREVER, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.shared.passthrough.get() == Some(&true) {
            self.open_passthrough(reply);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.shared.read(offset, size, reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.shared.write(offset, data, reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.shared.discard(offset, length, mode, reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.shared.store.flush_begin() {
            Ok(begin) => {
                let shared = self.shared.clone();
                self.shared.flushes.arrive(PendingFlush::new(reply, shared, begin));
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    /// FUSE calls a close `flush`; the disk's flush is [`Self::fsync`].
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let root = INodeNo::ROOT;
        let names = [
            (root, FileType::Directory, "."),
            (root, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, "disk"),
        ];
        for (next, (ino, kind, name)) in
            (1..).zip(names).skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
