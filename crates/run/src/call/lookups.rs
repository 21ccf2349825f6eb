//! What a decision about a call looks up: about the caller, and what its descriptors, paths and
//! memory lead to.

use crate::call::caller::Memory;
use crate::call::fd_info::{FdInfo, LookupError, Target};
use crate::call::mapping::{self, Mapping};
use crate::call::paths::Start;
use crate::call::tracee_locks::TraceeLocks;
use crate::commit::active::unmounting::{How, Unmounting};
use crate::process::real::RealTrees;
use crate::report::accounts::PassReason;
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// Looks up what a decision needs, about one call.
pub(crate) trait Lookups {
    /// Returns what descriptor `fd` of the caller leads to.
    fn descriptor(&mut self, fd: i32) -> Result<Target, LookupError>;

    /// Returns what `path`, resolved from `start`, leads to. For a path that does not exist
    /// yet, returns its directory.
    fn path(&self, start: Start, path: &Path) -> Result<Target, LookupError>;

    /// Returns the caller's memory.
    fn memory(&self) -> Result<Memory, LookupError>;

    /// Returns the mappings of `range` in the caller's memory.
    fn mapping(&self, range: Range<u64>) -> Result<Mapping, LookupError>;

    /// Returns the size in bytes of a page of the caller's memory.
    fn page_size(&self) -> u64;

    /// Returns why a sync of the files of `mapping` passes, or `None` if it is held.
    fn why_passed(&self, mapping: &Mapping) -> Option<PassReason>;

    /// Returns what ends when the caller unmounts `path`. Returns `None` if that is nothing.
    fn unmounting(&self, path: &Path, how: How) -> Option<Unmounting>;

    /// Whether the caller still waits for an answer.
    fn caller_waits(&self) -> bool;

    /// Returns why the syncs of the caller are real ([`RealTrees`]).
    fn why_real(&self) -> Option<PassReason>;
}

/// Looks up in /proc.
pub(crate) struct ProcLookups<'a> {
    pub thread: u32,
    pub fd_info: &'a mut FdInfo,
    pub real: &'a RealTrees,
    /// Threads whose unmount is looked up.
    pub unmounters: &'a TraceeLocks,
    /// Whether the call still waits for an answer.
    pub waits: &'a dyn Fn() -> bool,
}

impl Lookups for ProcLookups<'_> {
    fn descriptor(&mut self, fd: i32) -> Result<Target, LookupError> {
        self.fd_info.descriptor(self.thread, fd)
    }

    fn path(&self, start: Start, path: &Path) -> Result<Target, LookupError> {
        self.fd_info.path(start, path)
    }

    fn memory(&self) -> Result<Memory, LookupError> {
        if self.fd_info.is_blind() {
            return Err(LookupError::Unseen);
        }
        Memory::open(self.thread)
            .map_err(|error| Errno::from_io_error(&error).map_or(LookupError::NoFile, Into::into))
    }

    fn mapping(&self, range: Range<u64>) -> Result<Mapping, LookupError> {
        let mapping = (!self.fd_info.is_blind()).then(|| mapping::read(self.thread, range));
        mapping.flatten().ok_or(LookupError::Unseen)
    }

    fn page_size(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn why_passed(&self, mapping: &Mapping) -> Option<PassReason> {
        self.fd_info.why_passed(self.thread, mapping)
    }

    /// The look-up opens the mount point, and the kernel refuses to unmount what is open. A
    /// signal lets a thread repeat its call while a worker still looks up the interrupted call.
    /// So a thread's unmounts are looked up one after the other, and interrupted calls are not.
    fn unmounting(&self, path: &Path, how: How) -> Option<Unmounting> {
        let _alone = self.unmounters.wait_for(self.thread);
        self.caller_waits().then(|| Unmounting::find(self.thread, path, how)).flatten()
    }

    fn caller_waits(&self) -> bool {
        (self.waits)()
    }

    fn why_real(&self) -> Option<PassReason> {
        if self.real.has(self.thread) {
            return Some(PassReason::Real);
        }
        self.real.is_reader(self.thread).then_some(PassReason::Disk)
    }
}
