//! Syncs whose callers have no answer yet.
//!
//! A signal can end the wait of a caller, if the filter is not of synconce (`SA_RESTART` in
//! signal(7), `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` in seccomp(2)). The handler returns, and the
//! kernel or the program makes the call again: a second notification of one sync. Without a filter
//! the kernel would not have interrupted the sync. So both count as one sync.

use super::line::Call as CallLine;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The id of the notification, which is of one listener, and the number of the step.
pub(super) type CallId = (u64, Option<u32>);

#[derive(Default)]
pub(super) struct Syncs {
    in_progress: HashMap<CallId, SyncInProgress>,
    /// The last line was written: the record is being read.
    pub has_ended: bool,
}

struct SyncInProgress {
    line: CallLine,
    began: Instant,
    /// The sum of the waits that signals have ended.
    before: Duration,
    /// How long the sync took, once it is done.
    took: Option<Duration>,
}

impl Syncs {
    /// Notes that the sync `id` of `line` begins, or begins again. A thread has one sync at a time:
    /// if an earlier sync of the same file is still noted as in progress, a signal has interrupted
    /// its caller.
    pub fn begin(&mut self, id: CallId, line: CallLine) {
        if self.has_ended {
            return;
        }
        let is_same = |it: &CallLine| {
            (it.thread, it.step, it.call, &it.file)
                == (line.thread, line.step, line.call, &line.file)
        };
        let earlier = self.in_progress.iter().find(|(_, it)| is_same(&it.line)).map(|(id, _)| *id);
        let earlier = earlier.and_then(|id| self.in_progress.remove(&id));
        let before = earlier.as_ref().map_or(Duration::ZERO, SyncInProgress::wait);
        let line = earlier.map_or(line, |it| it.line);
        let began = Instant::now();
        self.in_progress.insert(id, SyncInProgress { line, began, before, took: None });
    }

    /// Notes that the sync `id` is done, with the error `errno` if it failed.
    pub fn finish(&mut self, id: CallId, errno: Option<i32>) {
        if let Some(sync) = self.in_progress.get_mut(&id) {
            sync.took = Some(sync.began.elapsed());
            sync.line.errno = errno;
        }
    }

    /// Removes the sync `id`, and returns its line. Returns `None` if the line was taken already.
    pub fn take(&mut self, id: CallId) -> Option<CallLine> {
        self.in_progress.remove(&id).map(SyncInProgress::into_line)
    }

    /// Removes the syncs whose lines are `wanted`. Returns the lines, with the waits until now.
    pub fn take_all(&mut self, wanted: impl Fn(&CallLine) -> bool) -> Vec<CallLine> {
        let taken = self.in_progress.extract_if(|_, it| wanted(&it.line));
        taken.map(|(_, it)| it.into_line()).collect()
    }
}

impl SyncInProgress {
    fn wait(&self) -> Duration {
        self.before + self.took.unwrap_or_else(|| self.began.elapsed())
    }

    fn into_line(self) -> CallLine {
        let wait = Some(u64::try_from(self.wait().as_nanos()).unwrap_or(u64::MAX));
        CallLine { wait, ..self.line }
    }
}

#[cfg(test)]
mod tests {
    use super::super::callers::Caller;
    use super::super::line::Would;
    use super::*;

    fn fsync(thread: u32, file: &str, at: u64) -> CallLine {
        CallLine {
            call: "fsync",
            at,
            thread,
            caller: Caller::default(),
            file: Some(file.to_owned()),
            bytes: None,
            wait: None,
            errno: None,
            would: Would::Hold,
            step: Some(1),
        }
    }

    #[test]
    fn a_sync_that_a_signal_has_interrupted_counts_once_with_both_waits() {
        let mut syncs = Syncs::default();
        let [first, second] = [(1, Some(1)), (2, Some(1))];
        syncs.begin(first, fsync(7, "/a", 10));
        syncs.finish(first, None);
        let before = syncs.in_progress[&first].took.unwrap();
        syncs.begin(second, fsync(7, "/a", 20));
        syncs.finish(second, Some(5));
        assert!(syncs.take(first).is_none(), "the first wait had no answer");
        let after = syncs.in_progress[&second].took.unwrap();
        let line = syncs.take(second).unwrap();
        assert_eq!((line.at, line.errno), (10, Some(5)));
        assert_eq!(line.wait.map(u128::from), Some((before + after).as_nanos()));
    }

    #[test]
    fn syncs_of_other_threads_and_files_count_apart() {
        let mut syncs = Syncs::default();
        for (id, thread, file) in [(1, 7, "/a"), (2, 8, "/a"), (3, 7, "/b")] {
            syncs.begin((id, Some(1)), fsync(thread, file, 10));
        }
        assert_eq!(syncs.take_all(|line| line.thread == 7).len(), 2);
        syncs.has_ended = true;
        syncs.begin((4, Some(1)), fsync(9, "/a", 10));
        assert_eq!(syncs.take_all(|_| true).len(), 1, "those after the end are not recorded");
    }
}
