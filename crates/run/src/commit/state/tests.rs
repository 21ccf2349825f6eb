use super::*;
use crate::options::RunOptions;
use std::cell::RefCell;

const DISK: DeviceId = DeviceId { major: 8, minor: 1 };

fn changing() -> Changing {
    Changing { thread: 7, call: Call::Openat, program: Some("cp".to_owned()) }
}

#[test]
fn a_call_keeps_its_sync_flag_once_the_run_is_over() {
    let mut over = State::default();
    assert!(!over.begin(1, changing()));
    assert!(over.close().unfinished.is_empty());
}

#[test]
fn a_call_that_goes_on_without_its_sync_flag_at_the_end_is_counted_as_held() {
    let shared = SharedState::new(Active::for_tests(&RunOptions::default()));
    assert!(shared.lock().begin(1, changing()));
    let closed = shared.close();
    assert_eq!(closed.unfinished, HashSet::from([7]));
    assert_eq!(closed.notes.accounts.programs["cp"].held, 1);
    assert!(shared.close().unfinished.is_empty(), "once");
}

/// A run that commits, and the work that was started for its calls.
struct Admissions {
    state: SharedState,
    started: RefCell<Vec<WorkKind>>,
    /// Returns the result of work. Work without a result goes on.
    perform: fn(WorkKind) -> Option<Done>,
    may_wait: bool,
}

impl Admissions {
    fn new(perform: fn(WorkKind) -> Option<Done>) -> Self {
        let options = RunOptions { commit: true, ..RunOptions::default() };
        let state = SharedState::new(Active::for_tests(&options));
        Self { state, started: RefCell::default(), perform, may_wait: true }
    }

    /// Asks for a call that waits for work.
    fn admit(&self, devices: &[DeviceId]) -> Result<Admission, MayBlock> {
        self.admit_while(devices, &|| true)
    }

    /// Asks for a call that a signal has interrupted.
    fn admit_interrupted(&self, devices: &[DeviceId]) -> Result<Admission, MayBlock> {
        self.admit_while(devices, &|| false)
    }

    fn admit_while(
        &self,
        devices: &[DeviceId],
        call_waits: &dyn Fn() -> bool,
    ) -> Result<Admission, MayBlock> {
        let start_work = |work: Work| {
            let kind = match work {
                Work::Mark(_) => WorkKind::Mark,
                Work::Pin { device, .. } => WorkKind::Pin(device),
            };
            self.started.borrow_mut().push(kind);
            if let Some(done) = (self.perform)(kind) {
                let _ = self.state.conclude(done);
            }
        };
        let call = CallToHold {
            devices,
            via: Via { thread: 7, fd: 3 },
            may_wait: self.may_wait,
            call_waits,
            start_work: &start_work,
        };
        self.state.admit(&call, |_| Admission::Held { late: false })
    }

    fn started(&self) -> Vec<WorkKind> {
        self.started.take()
    }
}

const HELD: Result<Admission, MayBlock> = Ok(Admission::Held { late: false });

/// Makes the marker durable, and finds no path to a file system.
fn mark(kind: WorkKind) -> Option<Done> {
    Some(match kind {
        WorkKind::Mark => Done::Marked(Ok(None)),
        WorkKind::Pin(device) => Done::Unpinned(device),
    })
}

#[test]
fn the_marker_is_durable_before_the_first_call_is_held() {
    let run = Admissions::new(mark);
    assert_eq!(run.admit(&[]), HELD);
    assert_eq!(run.started(), [WorkKind::Mark]);
    assert_eq!(run.admit(&[]), HELD);
    assert_eq!(run.started(), [], "once");
}

#[test]
fn a_thread_that_may_not_wait_starts_no_work() {
    let run = Admissions { may_wait: false, ..Admissions::new(mark) };
    assert_eq!(run.admit(&[]), Err(MayBlock));
    assert_eq!(run.started(), []);
}

#[test]
fn a_call_passes_if_no_path_leads_to_its_file_system() {
    let run = Admissions::new(mark);
    assert_eq!(run.admit(&[DISK]), Ok(UNCOVERED));
    assert_eq!(run.started(), [WorkKind::Mark, WorkKind::Pin(DISK)]);
    assert_eq!(run.admit(&[DISK]), Ok(UNCOVERED));
    assert_eq!(run.started(), [WorkKind::Pin(DISK)], "the next caller may have a path");
}

#[test]
fn a_call_on_a_volatile_overlay_passes() {
    let run = Admissions::new(|kind| match kind {
        WorkKind::Mark => Some(Done::Marked(Ok(None))),
        WorkKind::Pin(device) => Some(Done::Volatile(device)),
    });
    let passed = Ok(Admission::Passed(PassReason::Volatile));
    assert_eq!(run.admit(&[DISK]), passed);
    run.started();
    assert_eq!(run.admit(&[DISK]), passed);
    assert_eq!(run.started(), [], "it is remembered");
}

#[test]
fn no_call_is_held_without_a_marker() {
    let run = Admissions::new(|_| Some(Done::Marked(Err(RunError::Over))));
    assert_eq!(run.admit(&[]), Ok(Admission::Over));
    assert_eq!(run.admit(&[]), Ok(Admission::Over));
    assert_eq!(run.started(), [WorkKind::Mark], "a failed sync is not tried again");
    assert!(run.state.close().failure.is_some());
}

#[test]
fn a_call_that_was_interrupted_does_not_wait_for_work() {
    let run = Admissions::new(|_| None);
    assert_eq!(run.admit_interrupted(&[]), Ok(Admission::Over));
    assert_eq!(run.started(), [WorkKind::Mark]);
    assert_eq!(run.admit_interrupted(&[]), Ok(Admission::Over));
    assert_eq!(run.started(), [], "the work goes on");
}

#[test]
fn work_that_hangs_delays_no_call() {
    let run = Admissions::new(|_| None);
    assert_eq!(run.admit_interrupted(&[]), Ok(Admission::Over));
    assert_eq!(run.started(), [WorkKind::Mark]);
    let long_ago = Instant::now().checked_sub(PATIENCE).unwrap();
    run.state.lock().works.insert(WorkKind::Mark, long_ago);
    for may_wait in [false, true] {
        let run = Admissions { state: run.state.clone(), may_wait, ..Admissions::new(|_| None) };
        assert_eq!(run.admit(&[]), Ok(UNCOVERED), "{may_wait}");
        assert_eq!(run.started(), []);
    }
    let marked = run.state.conclude(Done::Marked(Ok(None)));
    assert!(marked.is_ok());
    assert_eq!(run.admit(&[]), HELD, "the work has ended after all");
}

#[test]
fn a_call_that_is_made_again_keeps_the_end_of_its_wait() {
    let run = Admissions::new(|_| None);
    assert_eq!(run.admit_interrupted(&[]), Ok(Admission::Over), "interrupted");
    *run.state.lock().waiting.get_mut(&7).unwrap() = Instant::now();
    assert_eq!(run.admit(&[]), Ok(UNCOVERED));
    assert!(run.state.lock().waiting.is_empty(), "the next call waits anew");
}

#[test]
fn a_run_that_commits_nothing_holds_at_once() {
    let state = SharedState::new(Active::for_tests(&RunOptions::default()));
    let run = Admissions { state, ..Admissions::new(|_| None) };
    assert_eq!(run.admit(&[DISK]), HELD);
    run.state.close();
    assert_eq!(run.admit(&[DISK]), Ok(Admission::Over));
}
