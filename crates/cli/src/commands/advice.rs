//! What to do about an interrupted run.

mod installer;
mod old_target;
mod other_root;
mod packages;
mod places;

use crate::text::{is_typable, shell};
use installer::Installs;
pub use old_target::OldTarget;
use packages::CalledByProgram;
pub use packages::MendStep;
use places::places;
use std::env;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use synconce_durable::boot::is_of_kernel;
use synconce_durable::record::{Private, RunRecord, boot_id, seconds};
use synconce_run::Process;

/// Returns lines of advice for the user's own interrupted run `record`; commands are indented.
/// `running` are the processes that remain of the run, and `root` is the target of `--root`.
/// `marked` is that target if the marker of the run is in it, and `old` the target of the run.
pub fn advice(
    record: Option<&RunRecord>,
    id: &str,
    root: Option<&Path>,
    marked: Option<&Path>,
    old: Option<&OldTarget>,
    running: &[Process],
) -> Vec<String> {
    let mut lines = end(running);
    match record.and_then(|it| Some((it, it.private.as_ref()?))) {
        // The state directory of the host has the marker of every run.
        Some((record, private)) => {
            let marked = marked.filter(|root| *root != Path::new("/"));
            lines.extend(mend_and_repeat(record, private, id, marked, old));
        }
        None => lines.push(
            "its marker is damaged; throw away what was being made, and make it again".into(),
        ),
    }
    lines.push(then_clear(id, root));
    lines
}

/// Returns what to do about the run and its result before its marker is cleared.
fn mend_and_repeat(
    record: &RunRecord,
    private: &Private,
    id: &str,
    marked: Option<&Path>,
    old: Option<&OldTarget>,
) -> Vec<String> {
    if other_root::has_run(private) {
        return other_root::throw_away(record, private);
    }
    let installs = Installs::from_command(&private.command);
    let system = marked.or_else(|| private.target());
    // A marker with another name is no argument of --mend.
    let mend = |root| is_typable(id).then(|| format!("    {}", command("--mend", id, root)));
    let is_beside = installs.here && private.target().is_some_and(|it| it != Path::new("/"));
    let on_host = mend(Some(Path::new("/"))).filter(|_| is_beside).map(|mend| {
        let why = "it installed packages on this system, too; install every package again, first:";
        vec![why.to_owned(), mend]
    });
    let on_host = on_host.unwrap_or_default();
    let away = || throw_away(record, private, installs, old);
    match installed(record, private, installs, system) {
        Ok(Installed::Known) => keep_system(record, private, installs, mend(marked), on_host),
        Ok(Installed::Perhaps) => {
            let place = system.map_or_else(
                || "on this system".to_owned(),
                |root| format!("in {}", root.display()),
            );
            let mend = mend(marked).into_iter().flat_map(|mend| {
                let why = "dpkg's files changed since the run began; if the run installed packages";
                let place = format!("{place}, install every package again, first:");
                [why.to_owned(), place, mend]
            });
            [mend.collect(), on_host, away()].concat()
        }
        Err(_) => [on_host, away()].concat(),
    }
}

/// Returns what to do about a run that installed packages. `mend` is the command that installs them
/// again, and `on_host` are the lines about packages of the host.
fn keep_system(
    record: &RunRecord,
    private: &Private,
    installs: Installs,
    mend: Option<String>,
    on_host: Vec<String>,
) -> Vec<String> {
    let anew = if private.in_root {
        "if you can make this system anew, do so where the run was started:"
    } else {
        "if you can make that system anew, do so, and run there:"
    };
    let mut lines = vec![
        format!("files that it wrote{} may be empty or old", places(record)),
        anew.to_owned(),
        again_line(record, private),
    ];
    // The same command alone skips packages that dpkg takes for installed.
    if let Some(mend) = mend {
        lines.push(
            "to keep the system, install every package again (dpkg's checks do not see all):"
                .to_owned(),
        );
        lines.push(mend);
    }
    lines.extend(on_host);
    lines.push(repeat_line(record, private));
    if private.root.is_none() && (installs.in_root || installs.in_new_root) {
        lines.push("make the other roots anew in which it installed packages".to_owned());
    }
    lines
}

/// Returns what to do about a run whose result is thrown away.
fn throw_away(
    record: &RunRecord,
    private: &Private,
    installs: Installs,
    old: Option<&OldTarget>,
) -> Vec<String> {
    let then = if private.in_root {
        "may be empty or old; throw this system away, and run again where the run was started:"
    } else {
        "may be empty or old; throw the result away and run it again:"
    };
    let mut lines: Vec<_> = old_target::line(private, old).into_iter().collect();
    lines.push(format!("files that it wrote{} {then}", places(record)));
    if installs.lists && !private.in_root {
        // apt would use an empty or half-written list as if it had been fetched whole.
        lines.push("    rm -rf /var/lib/apt/lists/*".to_owned());
    }
    lines.extend(again(record, private).ok().map(|line| format!("    {line}")));
    if installs.in_root && !installs.in_new_root {
        lines.push("with `synconce run --root DIR`, --mend could have mended DIR".to_owned());
    }
    lines
}

/// Returns the commands that install every package again in `root`.
///
/// # Errors
/// Why packages cannot be mended.
pub fn steps(
    record: &RunRecord,
    private: &Private,
    root: Option<&Path>,
) -> Result<Vec<MendStep>, &'static str> {
    if other_root::has_run(private) {
        return Err(other_root::REASON);
    }
    installed(record, private, Installs::from_command(&private.command), root)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(packages::steps(&record.started, last_boot(record), now.as_secs(), root))
}

/// The evidence that a run installed packages in a system that can be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Installed {
    /// The command of the run installs packages.
    Known,
    /// dpkg's files changed during the run. Another program can have changed them.
    Perhaps,
}

/// Returns the evidence that the run installed packages in the system at `root`, or why packages
/// cannot be mended. Without `--root`, no marker shows later which root the run changed.
fn installed(
    record: &RunRecord,
    private: &Private,
    installs: Installs,
    root: Option<&Path>,
) -> Result<Installed, &'static str> {
    // `run --root DIR` does not confine the command: its own system is that at `/`.
    let is_known = match root {
        Some(root) if private.in_root || private.root.is_some() && root != Path::new("/") => {
            installs.in_root && !installs.in_new_root
        }
        _ => installs.here,
    };
    let is_elsewhere = installs.in_root || installs.in_new_root;
    // The packages of the host are root's, and programs of a user's run gain no privileges.
    let is_by_root = record.user == 0 || private.root.is_some();
    if is_known {
        Ok(Installed::Known)
    } else if is_elsewhere {
        Err("make the root anew in which it installed packages")
    } else if is_by_root && installer::has_changed_packages(record, last_boot(record), root) {
        Ok(Installed::Perhaps)
    } else {
        Err("nothing shows that its command installed packages")
    }
}

/// Returns what is to be done about the run `id` after [`steps`]. `root` is the target of `--root`.
pub fn after_steps(
    record: &RunRecord,
    private: &Private,
    id: &str,
    root: Option<&Path>,
) -> [String; 3] {
    let repeat = "every package is installed again; now repeat what was interrupted:";
    [repeat.to_owned(), repeat_line(record, private), then_clear(id, root)]
}

/// Returns when the machine was booted, in seconds since 1970, if that was after the run.
fn last_boot(record: &RunRecord) -> Option<u64> {
    boot_id().ok().filter(|boot| *boot != record.boot)?;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
    // A container that was made anew can have another boot id on the same kernel. Elsewhere a clock
    // that was not set yet must not hide a boot.
    (is_of_kernel() || is_before(record, boot)).then_some(boot)
}

/// Whether the run of `record` began before `time`, in seconds since 1970.
fn is_before(record: &RunRecord, time: u64) -> bool {
    seconds(&record.started).is_some_and(|started| i128::from(started) <= i128::from(time))
}

/// Returns lines of advice for the interrupted run of another user. The lines repeat no word
/// of that user's marker: root might type it.
pub fn advice_for_root(id: &str, root: Option<&Path>, running: &[Process]) -> Vec<String> {
    let mut lines = end(running);
    lines.push(
        "files that it wrote may be empty or old; `synconce status` shows its user what to do"
            .into(),
    );
    lines.push(then_clear(id, root));
    lines
}

/// Returns lines of advice for a marker in `root` whose run has no record on this machine. The
/// lines repeat no word of the marker: the author of an unpacked image may have written it.
pub fn advice_for_unknown(id: &str, root: Option<&Path>) -> Vec<String> {
    vec![
        "this machine does not know the run as interrupted; anyone may have written the marker"
            .into(),
        "files that it wrote may be empty or old; throw the result away and make it again".into(),
        then_clear(id, root),
    ]
}

fn end(running: &[Process]) -> Vec<String> {
    if running.is_empty() {
        return Vec::new();
    }
    let pids: Vec<_> = running.iter().map(|process| process.pid.to_string()).collect();
    vec![
        "wait for the processes that are still running, or end them, first:".into(),
        format!("    kill {}", pids.join(" ")),
    ]
}

fn then_clear(id: &str, root: Option<&Path>) -> String {
    if !is_typable(id) {
        return "then: remove its marker, whose name is not one that synconce gives".to_owned();
    }
    format!("then: {}", command("--clear", id, root))
}

/// Returns the command line of `synconce status` with `option` for the run `id`.
pub fn command(option: &str, id: &str, root: Option<&Path>) -> String {
    let mut words = ["synconce", "status"].map(str::to_owned).to_vec();
    if let Some(root) = root {
        words.extend(["--root".to_owned(), root.to_string_lossy().into_owned()]);
    }
    words.extend([option.to_owned(), id.to_owned()]);
    shell(&words)
}

/// Returns what repeats the run in a system that was mended.
fn repeat_line(record: &RunRecord, private: &Private) -> String {
    match &private.root {
        Some(root) if private.in_root => {
            format!("    (repeat here what the command did in {})", root.display())
        }
        _ => again_line(record, private),
    }
}

fn again_line(record: &RunRecord, private: &Private) -> String {
    match again(record, private) {
        Ok(line) => format!("    {line}"),
        Err(CalledByProgram) => {
            "    (repeat what you did in the program that called dpkg)".to_owned()
        }
    }
}

/// Returns the command line that repeats the run, from wherever it is typed.
fn again(record: &RunRecord, private: &Private) -> Result<String, CalledByProgram> {
    let words = match packages::typed(&private.command) {
        Some(typed) => typed?,
        None => {
            let run = ["synconce", "run"].map(str::to_owned);
            [&run[..], &options(record, private), &["--".to_owned()], &private.command].concat()
        }
    };
    let line = shell(&words);
    let directory = &private.directory;
    // The record has no directory if the directory of the run was removed.
    if directory.as_os_str().is_empty() || env::current_dir().is_ok_and(|here| here == *directory) {
        return Ok(line);
    }
    let directory = shell(&["cd".to_owned(), directory.to_string_lossy().into_owned()]);
    Ok(format!("{directory} && {line}"))
}

/// Returns the options of the run of `record`.
fn options(record: &RunRecord, private: &Private) -> Vec<String> {
    if let Some(typed) = &private.options {
        return typed.clone();
    }
    let sealed = record.sealed.then(|| "--sealed".to_owned());
    let root = private.root.iter();
    let root = root.flat_map(|root| ["--root".to_owned(), root.to_string_lossy().into_owned()]);
    sealed.into_iter().chain(root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_host_are_not_those_of_the_root_of_a_run() {
        let found = |user: u32, root: Option<&str>, script: &str, target: Option<&str>| {
            let text = serde_json::json!({
                "version": 2, "id": "x", "started": "1970-01-01T00:00:00Z",
                "boot": boot_id().unwrap(), "user": user, "supervisor": 1,
                "sealed": false, "file_systems": [],
            });
            let record = RunRecord::from_public(text.to_string().as_bytes()).unwrap();
            let command = ["sh", "-c", script].map(str::to_owned).to_vec();
            let root = root.map(Into::into);
            let directory = "/".into();
            let (options, root_mount, in_root) = (None, None, false);
            let private = Private { command, options, root, directory, root_mount, in_root };
            let installs = Installs::from_command(&private.command);
            installed(&record, &private, installs, target.map(Path::new))
        };
        let (here, both) = ("apt install x", "apt install x; chroot /none apt install x");
        let new = "apt install debootstrap; debootstrap x /none";
        let none = Some("/none");
        for (script, on_host, in_root) in
            [(here, true, false), (both, true, true), (new, true, false)]
        {
            assert_eq!(found(0, None, script, None).is_ok(), on_host, "{script}");
            assert_eq!(found(0, none, script, Some("/")).is_ok(), on_host, "{script}");
            assert_eq!(found(0, none, script, none).is_ok(), in_root, "{script}");
        }
        // dpkg's files changed since 1970. A user's run has not changed them.
        let has_dpkg = Path::new("/var/lib/dpkg/info").exists();
        assert_eq!(found(0, None, "./provision.sh", None).is_ok(), has_dpkg);
        assert!(found(1000, None, "./provision.sh", None).is_err());
    }

    #[test]
    fn a_boot_is_before_or_after_the_begin_of_a_run() {
        let is_before = |started: &str| {
            let text = serde_json::json!({
                "version": 2, "id": "x", "started": started, "boot": "another", "user": 0,
                "supervisor": 1, "sealed": false, "file_systems": [],
            });
            is_before(&RunRecord::from_public(text.to_string().as_bytes()).unwrap(), 1_000_000_000)
        };
        assert!(is_before("2001-09-09T01:46:40Z"));
        assert!(!is_before("2001-09-09T01:46:41Z") && !is_before("yesterday"));
    }
}
