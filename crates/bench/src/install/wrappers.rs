//! Variants that put wrappers in the place of the root's own programs. Neither the set-up nor its
//! undo is timed.

use super::variants::{DIVERTS, SETUP};
use crate::Error;
use crate::command::show;
use crate::launcher::Launcher;
use crate::scenario::Variant;
use std::path::Path;

/// Diverts the programs in the root as the hooks of eatmydata-udeb do.
const DIVERT: &str = r#"
for name in dpkg apt-get aptitude tasksel; do
    program=/usr/bin/$name
    [ -x "$program" ] || continue
    dpkg-divert --quiet --local --rename --divert "$program.distrib" --add "$program"
    cat >"$program" <<END
#!/bin/sh
LD_PRELOAD="\${LD_PRELOAD:+\$LD_PRELOAD }libeatmydata.so" exec "$program.distrib" "\$@"
END
    chmod 755 "$program"
done
"#;
const UNDO_DIVERT: &str = r#"
for name in dpkg apt-get aptitude tasksel; do
    program=/usr/bin/$name
    [ -x "$program.distrib" ] || continue
    rm "$program"
    dpkg-divert --quiet --local --rename --remove "$program"
done
"#;
/// Copies the program `$2` into the root `$1`, and sets the root up.
const SET_UP: &str = r#"cp "$2" "$1/usr/bin/synconce" && "$2" setup apt --quiet --root "$1""#;
/// Every run is committed, or `status` fails.
const UNDO_SET_UP: &str = r#"
chroot "$1" synconce status
"$2" setup apt --quiet --undo --root "$1"
rm "$1/usr/bin/synconce"
rm -r "$1/var/lib/synconce" "$1/run/synconce"
"#;

/// Puts the wrappers of `variant`, if it has any, into the root.
pub(super) fn set_up(variant: &Variant, root: &Path, launcher: &Launcher) -> Result<(), Error> {
    run("put wrappers in the root", [DIVERT, SET_UP], variant, root, launcher)
}

/// Takes the wrappers and synconce away.
pub(super) fn undo(variant: &Variant, root: &Path, launcher: &Launcher) -> Result<(), Error> {
    run("undo the wrappers", [UNDO_DIVERT, UNDO_SET_UP], variant, root, launcher)
}

/// Runs the script of `variant`: `divert` for diverted programs, `setup` for `synconce setup apt`.
fn run(
    purpose: &str,
    [divert, setup]: [&str; 2],
    variant: &Variant,
    root: &Path,
    launcher: &Launcher,
) -> Result<(), Error> {
    let root = show(root);
    match (variant.name.as_str(), variant.needs.first()) {
        (DIVERTS, _) => launcher.run_helper(purpose, &["chroot", &root, "/bin/sh", "-ec", divert]),
        (SETUP, Some(synconce)) => {
            let words = ["sh", "-ec", setup, "sh", &root, &synconce.program];
            launcher.run_helper(purpose, &words)
        }
        _ => Ok(()),
    }
}
