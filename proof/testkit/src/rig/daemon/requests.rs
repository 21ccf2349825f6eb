//! Handles a request: a fault applies, or the request takes its time and is done.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use rustix::fs::FallocateFlags;

use super::DaemonState;
use super::faults::{Hanging, RequestFate};
use super::flushes::FlushReply;
use crate::rig::Requests;
use crate::rig::limits::Transfer;
use crate::rig::log::FlushEnd;

/// A flush that waits for its answer.
pub(super) struct PendingFlush {
    reply: ReplyEmpty,
    shared: Arc<DaemonState>,
    /// The number of its begin in the log.
    begin: u64,
}

impl PendingFlush {
    pub(super) fn new(reply: ReplyEmpty, shared: Arc<DaemonState>, begin: u64) -> Self {
        Self { reply, shared, begin }
    }
}

impl FlushReply for PendingFlush {
    fn answer(self) -> bool {
        let Self { reply, shared, begin } = self;
        let again = |reply| -> Hanging {
            let again = Self { reply, shared: shared.clone(), begin };
            Box::new(move || {
                again.answer();
            })
        };
        match shared.faults.verdict(Requests::Flushes, &[], reply, again) {
            RequestFate::Do(reply) => shared.store.flush_end(begin, FlushEnd::Done, |logged| {
                if logged { reply.ok() } else { reply.error(Errno::EIO) }
            }),
            RequestFate::Fail(reply) => {
                shared.store.flush_end(begin, FlushEnd::Failed, |_| reply.error(Errno::EIO));
                return false;
            }
            RequestFate::Hangs => {}
        }
        true
    }
}

impl DaemonState {
    pub(super) fn read(self: &Arc<Self>, offset: u64, size: u32, reply: ReplyData) {
        let again = |reply| -> Hanging {
            let shared = self.clone();
            Box::new(move || shared.read(offset, size, reply))
        };
        let reply = match self.faults.verdict(Requests::Reads, &[], reply, again) {
            RequestFate::Do(reply) => reply,
            RequestFate::Fail(reply) => {
                self.transfers.failed_reads.fetch_add(1, Relaxed);
                return reply.error(Errno::EIO);
            }
            RequestFate::Hangs => return,
        };
        let length = u64::from(size).min(self.size.saturating_sub(offset));
        self.pace.take(Transfer::Read, offset, length);
        // The length is at most `size`, which has 32 bits.
        let mut data = vec![0; usize::try_from(length).unwrap_or_default()];
        match self.store.read(offset, &mut data) {
            Ok(()) => {
                self.transfers.reads.fetch_add(1, Relaxed);
                self.transfers.read_bytes.fetch_add(length, Relaxed);
                reply.data(&data);
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    pub(super) fn write(self: &Arc<Self>, offset: u64, data: &[u8], reply: ReplyWrite) {
        let again = |reply| -> Hanging {
            let (shared, data) = (self.clone(), data.to_vec());
            Box::new(move || shared.write(offset, &data, reply))
        };
        let reply = match self.faults.verdict(Requests::Writes, data, reply, again) {
            RequestFate::Do(reply) => reply,
            RequestFate::Fail(reply) => {
                return self.fail_change(offset, data.len() as u64, || reply.error(Errno::EIO));
            }
            RequestFate::Hangs => return,
        };
        self.pace.take(Transfer::Write, offset, data.len() as u64);
        // Count first: a client that has the answer must find the request in the counts.
        self.transfers.writes.fetch_add(1, Relaxed);
        self.transfers.written_bytes.fetch_add(data.len() as u64, Relaxed);
        self.store.write(offset, data, |result| match result {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(Errno::from(error)),
        });
    }

    pub(super) fn discard(
        self: &Arc<Self>,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if !flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let again = |reply| -> Hanging {
            let shared = self.clone();
            Box::new(move || shared.discard(offset, length, mode, reply))
        };
        let reply = match self.faults.verdict(Requests::Writes, &[], reply, again) {
            RequestFate::Do(reply) => reply,
            RequestFate::Fail(reply) => {
                return self.fail_change(offset, length, || reply.error(Errno::EIO));
            }
            RequestFate::Hangs => return,
        };
        self.transfers.discards.fetch_add(1, Relaxed);
        self.store.discard(offset, length, |result| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(Errno::from(error)),
        });
    }

    fn fail_change(&self, offset: u64, length: u64, answer: impl FnOnce()) {
        self.transfers.failed_writes.fetch_add(1, Relaxed);
        self.store.failed(offset, length, answer);
    }
}
