//! What to do about an interrupted run.

use crate::text::{is_typable, shell};
use std::path::Path;
use synconce_durable::record::{Private, Record};
use synconce_run::Process;

/// Returns lines of advice for the user's own interrupted run `record`; commands are indented.
/// `running` are the processes that remain of the run, and `root` is the target of `--root`.
pub fn advice(
    record: Option<&Record>,
    id: &str,
    root: Option<&Path>,
    running: &[Process],
) -> Vec<String> {
    let mut lines = end(running);
    let clear = then_clear(id, root);
    let Some((record, private)) = record.and_then(|it| Some((it, it.private.as_ref()?))) else {
        lines.push(
            "its marker is damaged; throw away what was being made, and make it again".into(),
        );
        lines.push(clear);
        return lines;
    };
    let places = places(record);
    let again = format!("    {}", shell(&again(record, private)));
    if installs_packages(&private.command) {
        // The same command skips packages that dpkg takes for installed.
        lines.push(format!("files that it wrote{places} may be empty or old"));
        lines.push("if you can make that system anew, do so, and run there:".into());
        lines.push(again);
        lines.extend(dpkg(private.root.as_deref()));
    } else {
        lines.push(format!(
            "files that it wrote{places} may be empty or old; throw the result away and run it \
             again:"
        ));
        lines.push(again);
    }
    lines.push(clear);
    lines
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

/// Returns " on A, B and 3 more": the mount points of the file systems of `record`.
fn places(record: &Record) -> String {
    const SHOWN: usize = 4;
    let points = record.file_systems.iter().map(|system| system.mount_point.display().to_string());
    let points: Vec<_> = points.collect();
    let (shown, more) = points.split_at(SHOWN.min(points.len()));
    match (shown, more.len()) {
        ([], _) => String::new(),
        (shown, 0) => format!(" on {}", shown.join(", ")),
        (shown, more) => format!(" on {} and {more} more", shown.join(", ")),
    }
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
    let mut words = ["synconce", "status"].map(str::to_owned).to_vec();
    if let Some(root) = root {
        words.extend(["--root".to_owned(), root.to_string_lossy().into_owned()]);
    }
    words.extend(["--clear".to_owned(), id.to_owned()]);
    format!("then: {}", shell(&words))
}

fn again(record: &Record, private: &Private) -> Vec<String> {
    let mut words = vec!["synconce".to_owned(), "run".to_owned()];
    if record.sealed {
        words.push("--sealed".to_owned());
    }
    if let Some(root) = &private.root {
        words.extend(["--root".to_owned(), root.to_string_lossy().into_owned()]);
    }
    words.push("--".to_owned());
    words.extend(private.command.iter().cloned());
    words
}

const INSTALLERS: [&str; 9] = [
    "apt",
    "apt-get",
    "aptitude",
    "dpkg",
    "tasksel",
    "debootstrap",
    "mmdebstrap",
    "unattended-upgrade",
    "pkcon",
];

/// Whether a word of the command names a program that runs dpkg.
fn installs_packages(command: &[String]) -> bool {
    let words = command.iter().flat_map(|word| word.split_whitespace());
    let mut names = words.filter_map(|word| Path::new(word).file_name()?.to_str());
    names.any(|name| INSTALLERS.contains(&name))
}

/// Returns the commands that install the packages again. On some file systems dpkg's own
/// checks find neither empty files nor an empty database, so only a new installation is safe.
fn dpkg(root: Option<&Path>) -> Vec<String> {
    let enter =
        root.map(|root| format!("chroot {} ", shell(&[root.to_string_lossy().into_owned()])));
    let enter = enter.unwrap_or_default();
    let at = |path: &str| {
        let path = root.unwrap_or(Path::new("/")).join(path);
        shell(&[path.to_string_lossy().into_owned()])
    };
    let (old, new) = (at("var/lib/dpkg/status-old"), at("var/lib/dpkg/status"));
    vec![
        "to keep the system, install every package again (dpkg's checks do not see all):".into(),
        format!("    test -s {new} || cp {old} {new}"),
        format!("    {enter}dpkg --configure --pending"),
        format!(
            "    {enter}sh -c 'dpkg-query --show --showformat=\"\\${{binary:Package}}\\n\" | xargs apt-get install --reinstall --yes'"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_drives_dpkg_is_found_inside_a_chroot_and_a_shell() {
        let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        assert!(installs_packages(&words("chroot|/t|/usr/bin/apt-get|install|x")));
        assert!(installs_packages(&words("sh|-c|apt install x")));
        assert!(!installs_packages(&words("make|apt-docs/x")));
    }

    #[test]
    fn the_first_file_systems_are_named_and_the_others_counted() {
        let record = |points: &[&str]| {
            let systems = points.iter().map(
                |point| serde_json::json!({ "mount_point": point, "type": "ext4", "source": "x" }),
            );
            let text = serde_json::json!({
                "version": 2, "id": "x", "started": "", "boot": "", "user": 0, "supervisor": 1,
                "sealed": false, "file_systems": systems.collect::<Vec<_>>(),
            });
            Record::from_public(text.to_string().as_bytes()).unwrap()
        };
        assert_eq!(places(&record(&[])), "");
        assert_eq!(places(&record(&["/", "/srv"])), " on /, /srv");
        let five = record(&["/", "/a", "/b", "/c", "/d"]);
        assert_eq!(places(&five), " on /, /a, /b, /c and 1 more");
    }

    #[test]
    fn advice_for_another_root_acts_on_that_root() {
        let lines = dpkg(Some(Path::new("/target")));
        assert!(lines[1].contains("/target/var/lib/dpkg/status"));
        assert!(lines[2].contains("chroot /target dpkg --configure"));
        let lines = dpkg(Some(Path::new("/a $(b)")));
        assert!(lines[1].contains("'/a $(b)/var/lib/dpkg/status'"), "{}", lines[1]);
    }
}
