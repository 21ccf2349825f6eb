//! The requests of a probe to its engine, and what comes of them.

use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use synconce_sys::child::interrupted;

/// What the probe containers of an engine have shown.
#[derive(Debug)]
pub struct Probed {
    /// The builders whose step was not held; the client whose container asked for a hold in vain.
    pub real: Vec<&'static str>,
    /// Whether the ordinary container was held; `None` if the engine runs none.
    pub is_ordinary_held: Option<bool>,
}

/// The result of an attempt to run probe containers.
#[derive(Debug)]
pub struct Tried {
    /// What they have shown, or why not all of them ran, for the user.
    pub probed: Result<Probed, String>,
    /// The kind of the probe container that was tried last: `step` or `container`.
    pub last: &'static str,
    /// A command that shows whether the engine can run a container of that kind.
    pub by_hand: String,
    /// What their removal has shown.
    pub removed: Removed,
}

/// The result of the removal of what a probe has made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// What could not be removed, each with the command that removes it.
    pub left: Vec<String>,
    /// What is no fault.
    pub notes: Vec<String>,
}

/// The time for one answer: a step on a slow disk takes seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// The time for the removal after a cancellation.
const GRACE: Duration = Duration::from_secs(10);
/// The time in which an engine ends what it does for a request that was cut.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// The requests of a probe to its engine.
pub(crate) struct Requests<'a> {
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// The name of what the engine may make later: the request was sent, and has no answer.
    pub cut: RefCell<Option<String>>,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { is_cancelled, cut: RefCell::default() }
    }

    /// Calls `send` with `is_cancelled` for a request that makes the thing `made`, if it makes one.
    /// After a cancellation nothing is sent.
    pub(crate) fn send<T>(
        &self,
        made: Option<&str>,
        send: impl FnOnce(&dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        if (self.is_cancelled)() {
            return Err(interrupted().to_string());
        }
        send(self.is_cancelled).inspect_err(|_| {
            if let Some(made) = made {
                *self.cut.borrow_mut() = Some(made.to_owned());
            }
        })
    }
}

/// Returns whether `is_cancelled` ends a removal that begins now: [`GRACE`] later.
pub(crate) fn after_grace<'a>(is_cancelled: &'a dyn Fn() -> bool) -> impl Fn() -> bool + 'a {
    let begin = Instant::now();
    move || begin.elapsed() > GRACE && is_cancelled()
}

/// Calls `remove`, which returns what is left, until nothing is left, at most for [`SETTLE`].
/// Returns what is left. If a request `is_cut`, its result can appear later: then the calls go on
/// for all of that time.
pub(crate) fn until_gone<T>(
    is_cut: bool,
    mut remove: impl FnMut() -> Result<Vec<T>, String>,
) -> Result<Vec<T>, String> {
    let end = Instant::now() + SETTLE;
    loop {
        let left = remove()?;
        if Instant::now() >= end || left.is_empty() && !is_cut {
            return Ok(left);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns a name that no other probe has. Its length is always the same.
pub(crate) fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}", now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_removal_goes_on_until_nothing_is_left() {
        let calls = Cell::new(0);
        let remove = |left: usize| {
            calls.set(calls.get() + 1);
            Ok(vec![(); left.saturating_sub(calls.get())])
        };
        assert_eq!(until_gone(false, || remove(3)), Ok(Vec::new()));
        assert_eq!(calls.get(), 3);
        // What was cut may appear until the end.
        let begin = Instant::now();
        assert_eq!(until_gone(true, || remove(0)), Ok(Vec::new()));
        assert!(begin.elapsed() >= SETTLE);
        assert_eq!(until_gone(false, || remove(1000)).map(|left| left.is_empty()), Ok(false));
    }
}
