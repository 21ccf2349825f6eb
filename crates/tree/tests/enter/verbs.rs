//! The verbs of this test program, each run with one thread.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use synconce_tree::enter::{Ending, EnterSpec, enter};
use synconce_tree::namespace::enter_private;
use synconce_tree::overlay;

use crate::support::opened;

/// Executes the verb in `words`, if there is one.
pub fn done(words: &[String]) -> Option<ExitCode> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["enter", spec] => Some(entered(spec)),
        ["as-user", place, spec] => Some(as_user(Path::new(place), spec)),
        ["trial", place] => Some(tried(Path::new(place))),
        _ => None,
    }
}

fn entered(spec: &str) -> ExitCode {
    let spec: EnterSpec = serde_json::from_str(spec).expect("a specification");
    match enter(&spec) {
        Ok(Ending::Exited(code)) => ExitCode::from(code as u8),
        Ok(Ending::Killed(signal)) => {
            synconce_sys::signals::die_by(signal);
            ExitCode::from(125)
        }
        Ok(Ending::NotExecuted { command, errno }) => {
            eprintln!("{command}: {}", std::io::Error::from_raw_os_error(errno));
            ExitCode::from(if errno == rustix::io::Errno::NOENT.raw_os_error() { 127 } else { 126 })
        }
        Ok(Ending::Refused(why)) => {
            eprintln!("{why}");
            ExitCode::from(125)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(125)
        }
    }
}

/// Mounts a clone of `whole` in `place` as an ordinary user, and enters it.
fn as_user(place: &Path, spec: &str) -> ExitCode {
    if let Err(refusal) = enter_private() {
        eprintln!("{refusal}\n{}", refusal.remedy.as_deref().unwrap_or_default());
        return ExitCode::from(125);
    }
    let features = overlay::trial(opened(place).as_fd()).unwrap_or_else(|why| panic!("{why}"));
    let [whole, upper, work, root] =
        ["whole", "upper", "work", "root"].map(|name| opened(&place.join(name)));
    overlay::prepare_upper(upper.as_fd(), whole.as_fd()).unwrap_or_else(|why| panic!("{why}"));
    let lowers = [whole.as_fd()];
    let mount = overlay::writable(&lowers, upper.as_fd(), work.as_fd(), features);
    let mount = mount.unwrap_or_else(|why| panic!("{why}"));
    mount.attach(root.as_fd()).unwrap_or_else(|why| panic!("{why}"));
    entered(spec)
}

fn tried(place: &Path) -> ExitCode {
    enter_private().unwrap_or_else(|why| panic!("{why}"));
    let found = overlay::trial(opened(place).as_fd()).map_err(|error| error.to_string());
    println!("{}", serde_json::to_string(&found).expect("plain text"));
    ExitCode::SUCCESS
}
