//! `tree run` in a chroot.

use crate::site::{Site, limit};
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use std::process::Command;
use synconce_testkit::harness::{Place, trial};
use synconce_testkit::process::{self, Finished};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_run_works_in_a_chroot_to_a_mount_point, &NEEDS),
        trial(a_run_in_any_other_chroot_is_refused_with_the_command_that_helps, &NEEDS),
    ]
}

/// Makes `$1` a mount point with all that the machine has.
const MOUNTED: &str = "mount --rbind / \"$1\"";
/// Makes a root with all that the machine has in `$1`, which is no mount point.
const PLAIN: &str = r#"cd /; for name in *; do
    if [ -L "$name" ]; then cp -P "$name" "$1/"; fi
    if [ -d "$name" ] && [ ! -L "$name" ]; then mkdir "$1/$name"; mount --rbind "$name" "$1/$name"; fi
done"#;

/// Runs `tree run --from base WORDS -- echo inside` in the chroot that `script` makes.
fn run(place: &Place, site: &Site<'_>, script: &str, options: &[&str]) -> Finished {
    let root = place.path("root");
    std::fs::create_dir(&root).unwrap();
    let words = ["run", "--from", "base"];
    let tree = site.tree(&[&words[..], options, &["--", "/bin/sh", "-c", "echo inside"]].concat());
    let script = format!("{script}; root=$1; shift; exec chroot \"$root\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script, "sh"]).arg(&root);
    command.arg(tree.get_program()).args(tree.get_args()).current_dir(place.path(""));
    for (name, value) in tree.get_envs() {
        value.map(|value| command.env(name, value));
    }
    let finished = process::run(&mut command, limit()).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    finished
}

fn a_run_works_in_a_chroot_to_a_mount_point(place: &Place) {
    let site = with_base(place);
    for options in [&[][..], &["--no-hold"]] {
        let finished = run(place, &site, MOUNTED, options);
        assert_eq!(finished.stdout, "inside\n", "{options:?} {finished:?}");
        assert!(finished.status.success(), "{options:?} {finished:?}");
    }
}

fn a_run_in_any_other_chroot_is_refused_with_the_command_that_helps(place: &Place) {
    let site = with_base(place);
    let finished = run(place, &site, PLAIN, &[]);
    assert_eq!(finished.status.code(), Some(125), "{finished:?}");
    assert_eq!(
        finished.stderr,
        "synconce: cannot make mounts private below /: Invalid argument\n\
         synconce: hint: this is a chroot whose directory DIR is no mount point; outside of it: \
         mount --rbind DIR DIR, then chroot DIR\n"
    );
    // What the hint says.
    let hinted = format!("{PLAIN}; mount --rbind \"$1\" \"$1\"");
    let finished = run(place, &site, &hinted, &[]);
    assert_eq!(finished.stdout, "inside\n", "{finished:?}");
}
