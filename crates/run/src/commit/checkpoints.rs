//! Makes checkpoints for the processes that ask for one, and at intervals. Each is made by a
//! thread of its own, because it waits for disks.

use crate::commit::active::checkpoint::Extent;
use crate::commit::directory::Directory;
use crate::commit::state::SharedState;
use crate::report::protocol::{
    CommitReport, Message, Notice, Summary, progress_sender, refuse, send, try_send,
};
use crate::report::run_error::RunError;
use crate::request::presence;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use synconce_durable::commit::Progress;

const STACK: usize = 256 * 1024;

/// Makes a checkpoint for the process at the other end of `asker`, which gets the progress and
/// the result. `thread` belongs to the process.
pub(crate) fn serve(state: &SharedState, asker: OwnedFd, thread: u32) {
    let (state, asker) = (state.clone(), Arc::new(asker));
    let refused = Arc::clone(&asker);
    let make = move || match Directory::receive(&asker, thread) {
        Ok(directory) => make_for(&state, &asker, directory.as_ref()),
        Err(error) => refuse(&asker, error),
    };
    if let Err(error) = start(make) {
        refuse(refused, RunError::set_up("cannot create a thread", &error));
    }
}

/// Like [`serve`], for a process that has connected and may ask for a checkpoint.
pub(crate) fn serve_if_asked(state: &SharedState, caller: OwnedFd) {
    let (state, caller) = (state.clone(), Arc::new(caller));
    let refused = Arc::clone(&caller);
    let make = move || {
        if presence::asks_for_commit(&caller) {
            make_for(&state, &caller, None);
        }
    };
    if let Err(error) = start(make) {
        refuse(refused, RunError::set_up("cannot create a thread", &error));
    }
}

/// Makes a checkpoint every `interval` if calls were held since the last one. The first that
/// fails is a notice for the frontend.
pub(crate) fn make_every(interval: Duration, state: SharedState, frontend: Arc<OwnedFd>) {
    let make_all = move || {
        let mut is_noticed = false;
        loop {
            thread::sleep(interval);
            let Some(is_due) = state.lock().run().map(|active| active.take_held()) else { return };
            if !is_due {
                continue;
            }
            if let Some(report) = failed_of_held(&state).filter(|_| !is_noticed) {
                is_noticed = true;
                try_send(&*frontend, &Message::Notice(Notice::CheckpointFailed(report)));
            }
        }
    };
    // Without a thread only the commit at the end is made.
    let _ = start(make_all);
}

/// Makes a checkpoint of what was held, before a call that restarts or halts the machine without a
/// sync (`kernel/reboot.c`): a sync that the command made before was held. A failure is a notice
/// for the frontend.
pub(crate) fn make_before_end_of_machine(state: &SharedState, frontend: &OwnedFd) {
    if let Some(report) = failed_of_held(state) {
        try_send(frontend, &Message::Notice(Notice::CheckpointFailed(report)));
    }
}

/// Makes a checkpoint of what was held, and returns the report if that failed.
fn failed_of_held(state: &SharedState) -> Option<CommitReport> {
    let (report, _) = make(state, Extent::Held, None, &mut |_| {}).ok()?;
    (!report.is_durable()).then_some(report)
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("checkpoint".into()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

fn make_for(state: &SharedState, asker: impl AsFd, directory: Option<&Directory>) {
    let made = make(state, Extent::Written, directory, &mut progress_sender(&asker));
    let summary = match made {
        Ok((report, notice)) => {
            let error = (!report.is_durable()).then_some(RunError::Commit);
            if let Some(notice) = notice {
                try_send(&asker, &Message::Notice(notice));
            }
            Summary { commit: Some(report), error, ..Summary::default() }
        }
        Err(error) => Summary { error: Some(error), ..Summary::default() },
    };
    let _ = send(&asker, &Message::Done(Box::new(summary)));
}

/// Makes a checkpoint once it is its turn.
fn make(
    state: &SharedState,
    extent: Extent,
    directory: Option<&Directory>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(CommitReport, Option<Notice>), RunError> {
    let checkpoints = state.lock().run().ok_or(RunError::Over)?.checkpoints()?;
    let turn = checkpoints.turn();
    // Under the turn, for which an unmount waits, and not under the lock of the run.
    let found = directory.map(Directory::find).transpose()?.flatten();
    let checkpoint = state.lock().run().ok_or(RunError::Over)?.checkpoint(turn, extent, found)?;
    let made = checkpoint.perform(progress);
    state.lock().notes.checkpoint_micros += made.0.micros;
    Ok(made)
}
