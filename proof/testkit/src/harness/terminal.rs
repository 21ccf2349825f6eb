//! A terminal to type into.

use super::{Place, binary, limit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{Action, Winsize, tcflow, tcsetwinsize};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A session on a terminal of its own; `$SYNCONCE` in its shell is the program.
pub struct Terminal {
    /// The other end of the terminal; its drop hangs the terminal up.
    master: Option<OwnedFd>,
    session: Child,
    /// Everything that was shown.
    shown: String,
    /// The end, in bytes of `shown`, of what [`Self::expect`] has matched.
    matched: usize,
    /// The lines typed by [`Self::line`]; a shell shows one prompt more.
    lines: usize,
}

/// The prompt of bash.
const PROMPT: &str = "prompt> ";

impl Terminal {
    /// Starts `words` as the leader of a new session.
    pub fn start(place: &Place, words: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("the other end");
        let name = ptsname(&master, Vec::new()).expect("its name").into_bytes();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(OsString::from_vec(name), flags, Mode::empty()).expect("it");
        let copy = || slave.try_clone().expect("a copy");
        let mut command = place.command("setsid");
        command
            .arg("--ctty")
            .args(words)
            .env("SYNCONCE", binary())
            .env("PS1", PROMPT)
            .env("TERM", "dumb")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy());
        let session = command.spawn().expect("a session");
        Self { master: Some(master), session, shown: String::new(), matched: 0, lines: 0 }
    }

    /// Starts an interactive shell with job control.
    pub fn shell(place: &Place) -> Self {
        Self::start(place, &["bash", "--norc", "--noprofile", "--noediting", "-i"])
    }

    /// Types `text` unchanged.
    pub fn write(&mut self, text: &str) {
        let master = self.master.as_ref().expect("a terminal that is not closed");
        rustix::io::write(master, text.as_bytes()).expect("room in the terminal");
    }

    /// Gives the terminal a size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let master = self.master.as_ref().expect("a terminal that is not closed");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(master, size).expect("a size");
    }

    /// Makes the terminal take no output from now on.
    pub fn stop_output(&self) {
        let master = self.master.as_ref().expect("a terminal that is not closed");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(master, flags).expect("the other end");
        tcflow(&slave, Action::OOff).expect("a stop");
    }

    /// Returns the id of the session's leader.
    pub fn leader(&self) -> u32 {
        self.session.id()
    }

    /// Types a line at the prompt of the shell, and waits for its echo. A line that is typed
    /// before the prompt is shown can be echoed in the middle of the prompt.
    pub fn line(&mut self, text: &str) {
        self.prompt();
        self.lines += 1;
        self.write(&format!("{text}\n"));
        self.expect(&format!("{text}\r\n"));
    }

    /// Waits for the prompt that follows the last line; returns what came before it and was not
    /// yet matched.
    pub fn prompt(&mut self) -> String {
        let lines = self.lines;
        let at =
            self.until(PROMPT, |shown| shown.match_indices(PROMPT).nth(lines).map(|(at, _)| at));
        let before = self.shown.get(self.matched..at).unwrap_or_default().to_owned();
        self.matched = self.matched.max(at + PROMPT.len());
        before
    }

    /// Waits until `text` is shown; returns what came before it.
    pub fn expect(&mut self, text: &str) -> String {
        let start = self.matched;
        let at = self.until(text, |shown| shown[start..].find(text).map(|at| start + at));
        self.matched = at + text.len();
        self.shown[start..at].to_owned()
    }

    /// Reads until `find` returns where `text` is.
    fn until(&mut self, text: &str, find: impl Fn(&str) -> Option<usize>) -> usize {
        let end = Instant::now() + limit();
        loop {
            if let Some(at) = find(&self.shown) {
                return at;
            }
            assert!(
                Instant::now() < end && self.read(Duration::from_millis(200)),
                "{text:?} is not shown after {} lines, but {:?}",
                self.lines,
                &self.shown[self.matched..]
            );
        }
    }

    /// Reads what there is, within `limit`; returns `false` when the other end of the terminal
    /// is closed.
    fn read(&mut self, limit: Duration) -> bool {
        let master = self.master.as_ref().expect("a terminal that is not closed");
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        let limit = Timespec::try_from(limit).expect("a short time");
        if poll(&mut fds, Some(&limit)).expect("a poll") == 0 {
            return true;
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(master, &mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
                true
            }
        }
    }

    /// Returns the exit code of the last command of the shell.
    pub fn code(&mut self) -> String {
        self.line("echo \"<$?>\"");
        self.expect("<");
        self.expect(">")
    }

    /// Closes the terminal, like a closed window or a lost connection.
    pub fn hang_up(&mut self) {
        self.master = None;
    }

    /// Waits for the end of the session's leader.
    pub fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + limit();
        loop {
            if let Some(status) = self.session.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < end, "the session does not end: {:?}", self.shown);
            match self.master {
                Some(_) => drop(self.read(Duration::from_millis(20))),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // In a test that passes the leader has ended already.
        let _ = self.session.kill();
        let _ = self.session.wait();
    }
}
