//! A step of a build that `synconce doctor -- COMMAND` watches. The step is not held.
//!
//! The runtime hands doctor the listener of the step's filter (`config-linux.md`, *Seccomp*:
//! SCMP_ACT_NOTIFY and `listenerPath`).

use crate::bundle::Bundle;
use crate::held_steps::LastStep;
use crate::profile::{self, Profile};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};
use serde_json::{Value, json};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use synconce_durable::step_watch::{ASK, LEAVE, WATCH, WatchedStep, socket};
use synconce_filter::{Call, SealedAnswer, args};
use synconce_probe::version::numbers;

const NOTIFY: &str = "SCMP_ACT_NOTIFY";
/// Limits the wait for a doctor that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets a doctor that watches steps watch the `step` of `engine`, whose container `runtime` makes
/// of `bundle`. Returns `false` if no doctor does.
///
/// # Errors
/// The bundle cannot be changed. The message is for the user.
pub(crate) fn begin(
    bundle: &Bundle,
    runtime: &Path,
    engine: &str,
    step: &LastStep,
) -> Result<bool, String> {
    let Some(path) = socket() else { return Ok(false) };
    let Ok(doctor) = connect(&path) else { return Ok(false) };
    let about = WatchedStep {
        engine: engine.to_owned(),
        image: step.image.clone(),
        command: bundle.command().join(" "),
        unseen: None,
    };
    let about = about.shortened();
    let listener = path.to_string_lossy();
    let profile = bundle.seccomp()?;
    let watched = can_hand_over(runtime, profile.as_ref())
        .and_then(|()| watch(profile, &listener, &json!(about).to_string()));
    let unseen = watched.as_ref().err().cloned();
    match ask(&doctor, &WatchedStep { unseen, ..about }) {
        Some(LEAVE) => return Ok(true),
        Some(WATCH) => {}
        _ => return Ok(false),
    }
    bundle.replace(&bundle.with_seccomp(&watched?)?)?;
    // Open until the step's process starts: the runtime inherits it, and closes it for the
    // container.
    if fcntl_setfd(&doctor, FdFlags::empty()).is_ok() {
        let _ = doctor.into_raw_fd();
    }
    Ok(true)
}

fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let doctor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&doctor, timeout, Some(PATIENCE))?;
    }
    rustix::net::connect(&doctor, &SocketAddrUnix::new(path)?)?;
    Ok(doctor)
}

/// Returns the answer of `doctor` about `step`; `None` if it does not watch the step.
fn ask(doctor: &OwnedFd, step: &WatchedStep) -> Option<u8> {
    let mut question = vec![ASK];
    serde_json::to_writer(&mut question, step).ok()?;
    question.push(b'\n');
    let sent = rustix::net::send(doctor, &question, SendFlags::NOSIGNAL).ok()?;
    let mut answer = [0];
    let (length, _) = rustix::net::recv(doctor, &mut answer, RecvFlags::empty()).ok()?;
    (sent == question.len() && length == 1).then_some(answer[0])
}

/// Returns `profile`, or a new one, with the calls that a hold answers left to a supervisor that
/// listens at the path `listener`. `metadata` is for the supervisor.
///
/// # Errors
/// Why no supervisor can answer, or a part of the profile that violates the specification.
fn watch(profile: Option<Profile>, listener: &str, metadata: &str) -> Result<Profile, String> {
    if profile.as_ref().map_or(Ok(false), has_listener)? {
        return Err("its profile has a listener of its own".to_owned());
    }
    let mut profile = profile::edit(profile, watched_calls(), notify)?.profile;
    profile.insert("listenerPath".to_owned(), listener.into());
    profile.insert("listenerMetadata".to_owned(), metadata.into());
    Ok(profile)
}

fn has_listener(profile: &Profile) -> Result<bool, String> {
    let path = profile.get("listenerPath").and_then(Value::as_str).unwrap_or_default();
    let notifies = |rule: &Value| rule.get("action").is_some_and(|action| action == NOTIFY);
    Ok(!path.is_empty() || profile::rules(profile)?.iter().any(notifies))
}

/// Which calls of one name are watched.
enum WatchedCalls {
    /// Those that a hold gives this answer.
    Held(SealedAnswer),
    /// Those whose flags make later writes sync.
    Open(Call),
}

/// Returns the calls that are watched, by the names that a profile uses.
fn watched_calls() -> impl Iterator<Item = (Vec<&'static str>, WatchedCalls)> {
    let opens = [Call::Open, Call::Openat];
    let opens = opens.into_iter().map(|call| (vec![call.name()], WatchedCalls::Open(call)));
    let held = profile::sealed_calls();
    held.map(|(names, answer)| (names, WatchedCalls::Held(answer))).chain(opens)
}

/// Returns the rules by which a supervisor answers the `calls` with `names`.
fn notify(names: &[&'static str], calls: WatchedCalls) -> Vec<Value> {
    let rule = json!({"names": names, "action": NOTIFY});
    match calls {
        _ if names.is_empty() => Vec::new(),
        WatchedCalls::Held(SealedAnswer::SuccessIfSync) => profile::if_sync(names, rule),
        WatchedCalls::Held(_) => vec![rule],
        WatchedCalls::Open(call) => args::open_flags_index(call)
            .map_or_else(Vec::new, |index| profile::if_flag(names, rule, index, args::O_DSYNC)),
    }
}

/// Asks whether `runtime` can hand the listener of a filter with `profile` over.
///
/// # Errors
/// Why not.
fn can_hand_over(runtime: &Path, profile: Option<&Profile>) -> Result<(), String> {
    let shown = Command::new(runtime).arg("--version").stdin(Stdio::null()).output();
    let shown = shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned());
    let version = shown.unwrap_or_default();
    if let Some(why) = why_not(&version) {
        return Err(why);
    }
    // Under the filter, crun waits for the process that hands the listener over.
    let profile = profile.filter(|profile| version.starts_with("crun") && !profile.is_empty());
    if profile.map_or(Ok(true), |profile| profile::allows(profile, "wait4"))? {
        return Ok(());
    }
    Err("its profile refuses wait4, by which crun hands a listener over".to_owned())
}

/// Returns why the runtime that prints `version` cannot hand a listener over.
fn why_not(version: &str) -> Option<String> {
    let mut words = version.split_whitespace();
    let (name, number) = (words.next().unwrap_or("the runtime"), words.nth(1).unwrap_or_default());
    let least = match name {
        "runc" => (1, 1),
        "crun" => (1, 0),
        _ => return Some(format!("{name} is neither runc nor crun")),
    };
    if is_before(number, least) {
        let (major, minor) = least;
        return Some(format!("{name} {number} hands no listener over: that takes {major}.{minor}"));
    }
    let library = version.lines().find_map(|line| line.strip_prefix("libseccomp:"));
    match library.map(str::trim) {
        Some(library) if is_before(library, (2, 5)) => {
            Some(format!("{name} has libseccomp {library}: a listener takes 2.5"))
        }
        _ => None,
    }
}

/// Whether `version` is before `least`, or not known.
fn is_before(version: &str, least: (u32, u32)) -> bool {
    numbers(version).is_none_or(|version| version < least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_gets_the_calls_that_a_hold_answers() {
        let theirs = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "syscalls": [
                {"names": ["fsync", "read", "msync", "sync_file_range"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["openat"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["sync"], "action": "SCMP_ACT_LOG"},
            ],
        });
        let watched = watch(theirs.as_object().cloned(), "/run/x", "{}").unwrap();
        let notified = |name: &str| json!({"names": [name], "action": NOTIFY});
        let rules = watched["syscalls"].as_array().unwrap();
        assert_eq!(rules[..2], [notified("fsync"), notified("sync_file_range")]);
        assert_eq!(
            (&rules[2]["action"], &rules[2]["args"][0]["valueTwo"]),
            (&NOTIFY.into(), &4.into())
        );
        assert_eq!(rules[3]["action"], "SCMP_ACT_ALLOW", "which only changes memory");
        let open = json!({"index": 2, "value": 4096, "valueTwo": 4096, "op": "SCMP_CMP_MASKED_EQ"});
        let mut opens = notified("openat");
        opens["args"] = json!([open]);
        assert_eq!((&rules[4], &rules[5]["action"]), (&opens, &"SCMP_ACT_ALLOW".into()));
        assert_eq!(rules[6], json!({"names": ["read"], "action": "SCMP_ACT_ALLOW"}));
        assert_eq!(rules[7]["action"], "SCMP_ACT_LOG", "left to the profile");
        assert_eq!(
            (&watched["listenerPath"], &watched["listenerMetadata"]),
            (&"/run/x".into(), &"{}".into())
        );
        assert!(watch(Some(watched), "/run/y", "{}").unwrap_err().contains("of its own"));
        assert!(watch(None, "/run/x", "{}").is_ok());
    }

    #[test]
    fn a_runtime_that_hands_no_listener_over_is_named() {
        let runc = |version: &str, library: &str| {
            why_not(&format!("runc version {version}\nspec: 1.0.2\nlibseccomp: {library}\n"))
        };
        assert_eq!(runc("1.1.5+ds1", "2.5.4"), None);
        assert_eq!(runc("1.2.0-rc.1", "2.6.0"), None);
        let old = "runc 1.0.3 hands no listener over: that takes 1.1";
        assert_eq!(runc("1.0.3", "2.5.4").as_deref(), Some(old));
        assert!(runc("1.1.5", "2.4.4").unwrap().contains("libseccomp 2.4.4"));
        assert_eq!(why_not("crun version 1.8.1\ncommit: f8\n"), None);
        assert!(why_not("crun version 0.14").is_some() && why_not("").is_some());
        assert!(why_not("youki version 0.5.0").unwrap().contains("youki"));
    }
}
