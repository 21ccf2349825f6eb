//! A recording that has outlived its disk.

use std::ops::Deref;

use crate::rig::record::RigRecord;
use crate::rig::recording::Recording;
use crate::rig::teardown::{Busy, teardown};

/// A recording whose disk is gone. Dropping the value removes the files; if this process is
/// killed, the reaper removes them.
#[derive(Debug)]
pub struct Tape {
    record: RigRecord,
    recording: Recording,
}

impl Tape {
    pub(in crate::rig) fn new(record: RigRecord, recording: Recording) -> Self {
        Self { record, recording }
    }
}

impl Deref for Tape {
    type Target = Recording;

    fn deref(&self) -> &Recording {
        &self.recording
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if let Err(error) = teardown(&self.record, Busy::Force) {
            eprintln!("rig: cannot remove {}: {error}", self.recording.log.display());
        }
    }
}
