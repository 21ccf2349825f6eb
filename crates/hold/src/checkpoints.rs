//! Makes checkpoints for the processes that ask for one, and at intervals. Each is made by a
//! thread of its own, because it waits for disks.

use crate::active::Extent;
use crate::presence;
use crate::protocol::{CommitReport, Message, Notice, Summary, send, try_send};
use crate::run_error::RunError;
use crate::state::Shared;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use synconce_durable::commit::Progress;

const STACK: usize = 256 * 1024;

/// Makes a checkpoint for the process at the other end of `asker`, which gets the progress and
/// the result. If no thread can be created, `asker` is closed without a result.
pub(crate) fn serve(state: &Shared, asker: OwnedFd) {
    let state = state.clone();
    start(move || make_for(&state, &asker));
}

/// Like [`serve`], for a process that has connected and may ask for a checkpoint.
pub(crate) fn serve_if_asked(state: &Shared, caller: OwnedFd) {
    let state = state.clone();
    start(move || {
        if presence::asks_for_commit(&caller) {
            make_for(&state, &caller);
        }
    });
}

/// Makes a checkpoint every `interval` if calls were held since the last one. The first that
/// fails is a notice for the frontend.
pub(crate) fn make_every(interval: Duration, state: Shared, frontend: Arc<OwnedFd>) {
    start(move || {
        let mut is_noticed = false;
        loop {
            thread::sleep(interval);
            let Some(is_due) = state.lock().run().map(|active| active.take_held()) else { return };
            if !is_due {
                continue;
            }
            let made = make(&state, Extent::Held, &mut |_| {});
            let failed = made.ok().map(|(report, _)| report).filter(|report| !report.is_durable());
            if let Some(report) = failed.filter(|_| !is_noticed) {
                is_noticed = true;
                try_send(&*frontend, &Message::Notice(Notice::CheckpointFailed(report)));
            }
        }
    });
}

fn start(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("checkpoint".into()).stack_size(STACK);
    drop(thread.spawn(work));
}

fn make_for(state: &Shared, asker: impl AsFd) {
    let made = make(state, Extent::Written, &mut |progress| {
        let waiting = progress.waiting.iter().map(|path| (*path).to_owned()).collect();
        // A process that was killed or is stopped does not delay the checkpoint.
        try_send(&asker, &Message::Progress { waiting, dirty: progress.dirty });
    });
    let summary = match made {
        Ok((report, notice)) => {
            let error = (!report.is_durable()).then_some(RunError::Commit);
            notice.into_iter().for_each(|notice| try_send(&asker, &Message::Notice(notice)));
            Summary { commit: Some(report), error, ..Summary::default() }
        }
        Err(error) => Summary { error: Some(error), ..Summary::default() },
    };
    let _ = send(&asker, &Message::Done(Box::new(summary)));
}

/// Makes a checkpoint once it is its turn.
fn make(
    state: &Shared,
    extent: Extent,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(CommitReport, Option<Notice>), RunError> {
    let checkpoints = state.lock().run().ok_or(RunError::Over)?.checkpoints();
    let turn = checkpoints.turn();
    let checkpoint = state.lock().run().ok_or(RunError::Over)?.checkpoint(turn, extent)?;
    Ok(checkpoint.perform(progress))
}
