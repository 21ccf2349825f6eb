//! A hostile user of the daemon, to whom the directory of the held files belongs. Whatever that
//! user plants there, no verb of root changes a file elsewhere.

mod attacks;

use self::attacks::{ATTACKS, Attack, When};
use crate::crashes::crash_at;
use crate::support::{end, failed, sh};
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish, isolated};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

/// A hold of the files of another user, and a directory of root on the same disk.
struct Hostile<'a> {
    place: &'a Place,
    rig: Rig,
}

impl<'a> Hostile<'a> {
    fn new(place: &'a Place) -> Self {
        let hostile =
            Self { place, rig: Rig::builder().size(64 << 20).passthrough(false).up().unwrap() };
        hostile.root(
            "mkdir -p app/data/db
             : >app/data/meta.db
             chown -R 4321:4321 app
             mkdir -p victim/db/upper victim/db/work victim/db/lower victim/meta.db/upper
             mkdir -p victim/.synconce-aside-t-1 victim/mounted
             for name in db/data db/upper/data db/work/data meta.db/upper/data file README \
                 .synconce-aside-t-1/db .synconce-aside-t-1/meta.db; do
                 echo \"$name\" >\"victim/$name\"
             done
             cd app/data; mkdir -p plain copy/db known/db/upper known/db/work known/meta.db/upper
             for name in plain/file copy/db/data copy/meta.db known/db/upper/data \
                 known/db/work/data known/meta.db/upper/meta.db; do
                 echo \"precious $name\" >\"$name\"
             done
             cd ../..
             mount -t tmpfs none victim/db/lower; echo >victim/db/lower/data",
        );
        let app = hostile.app().display().to_string();
        let settings = "after_crash = \"wipe\"\n";
        let held = format!(
            "[[hold]]\npath = \"{app}/data/meta.db\"\nkind = \"bolt\"\n\
             [[hold]]\npath = \"{app}/data/db\"\nkind = \"other\"\n"
        );
        place.write("t.toml", &format!("{settings}{held}"));
        hostile
    }

    fn app(&self) -> PathBuf {
        self.rig.path().join("app")
    }

    /// Runs commands of root in the root of the disk.
    fn root(&self, script: &str) -> String {
        sh(self.place, &format!("cd {}; {script}", self.rig.path().display()))
    }

    /// Runs commands of the user in `app`.
    fn user(&self, script: &str) {
        let user = "setpriv --reuid 4321 --regid 4321 --clear-groups";
        let script = format!(
            "cd app; victim={}/victim; export victim; {user} sh -ec '{script}'",
            self.rig.path().display()
        );
        self.root(&script);
    }

    fn verb(&self, words: &[&str]) -> Finished {
        finish(&mut self.place.synconce(&[&["hold"], words, &["./t.toml"]].concat()))
    }

    fn ok(&self, words: &[&str]) {
        let finished = self.verb(words);
        assert_eq!(finished.status.code(), Some(0), "{words:?}: {}", finished.stderr);
    }

    /// Returns all that is known of the files of root, and the mounts there.
    fn victim(&self) -> String {
        self.root(
            "find victim -printf '%p %y %m %U %G %n %s %T@ %C@ %l\\n' | sort
             find victim -type f | sort | xargs sha256sum
             grep victim /proc/self/mountinfo | cut -d ' ' -f 1-8; ls -A; cat victim/db/lower/data",
        )
    }

    /// Returns the files of root in the directories of the user.
    fn files_of_root(&self) -> String {
        self.root("grep -r precious app | sort")
    }

    /// Removes the disk, also while files on it are held.
    fn down(self) {
        self.place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
        sh(self.place, "rm -rf state runtime");
        self.root("findmnt -nrRo TARGET --target . | tac | sed \\$d | xargs -r umount");
        self.rig.down().unwrap();
    }

    /// Brings the hold into the state in which the user acts.
    fn reach(&self, when: When) {
        if when == When::Off {
            return;
        }
        self.ok(&["start"]);
        let data = self.app().join("data");
        fs::write(data.join("db/data"), "old").unwrap();
        if when == When::Held {
            return;
        }
        crash_at(self.place, &[data.join("meta.db"), data.join("db")]);
        if when == When::SetAside {
            self.ok(&["recover"]);
            self.root(
                "cd app/data; mkdir db; echo new >db/new; : >meta.db; chown -R 4321 db meta.db",
            );
        }
    }
}

/// Acts as the user, calls the verb and then all others, and ends the hold.
fn attempt(hostile: &Hostile<'_>, attack: &Attack) -> Result<(), String> {
    let name = attack.name;
    hostile.reach(attack.when);
    hostile.user(attack.plant);
    let look = || hostile.victim() + &hostile.files_of_root();
    let before = look();
    let mut verbs = vec![attack.verb];
    let others: [&[&str]; 4] = [&["status"], &["start"], &["recover"], &["settle"]];
    verbs.extend(others);
    for (index, verb) in verbs.into_iter().enumerate() {
        let done = hostile.verb(verb);
        let code = done.status.code();
        let is_meant = match index {
            0 => code == Some(attack.code) && done.stderr.contains(attack.said),
            _ => matches!(code, Some(0 | 4 | 125)),
        };
        if !is_meant {
            return Err(format!("{name}: {verb:?}: {code:?} {}", done.stderr));
        }
        let after = look();
        if after != before {
            return Err(format!(
                "{name}: {verb:?}: {}\nbefore {before}\nafter {after}",
                done.stderr
            ));
        }
    }
    hostile.root(&format!("cd app; {}", attack.undo));
    for verb in ["recover", "stop", "start", "stop"] {
        let done = hostile.verb(&[verb]);
        if done.status.code() != Some(0) {
            return Err(format!("{name}: at the end: {verb}: {}", done.stderr));
        }
    }
    if hostile.app().join("data/.synconce-hold").exists() {
        Err(format!("{name}: something is left"))
    } else {
        Ok(())
    }
}

/// Tries all attacks in the state `when`.
fn all(place: &Place, when: When) {
    let mut failed = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| attack.when == when) {
        let hostile = Hostile::new(place);
        failed.extend(attempt(&hostile, attack).err());
        hostile.down();
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn nothing_elsewhere_is_changed_by_what_is_planted_before_the_start() {
    isolated(|place| all(place, When::Off));
}

#[test]
fn nothing_elsewhere_is_changed_by_what_is_planted_while_held() {
    isolated(|place| all(place, When::Held));
}

#[test]
fn nothing_elsewhere_is_changed_by_what_is_planted_after_a_crash() {
    isolated(|place| all(place, When::Interrupted));
}

#[test]
fn nothing_elsewhere_is_changed_by_what_is_planted_before_files_are_settled() {
    isolated(|place| all(place, When::SetAside));
}

#[test]
fn a_hard_link_to_a_file_of_root_is_not_held() {
    isolated(|place| {
        let hostile = Hostile::new(place);
        // Where fs.protected_hardlinks is 0, the user can do so.
        hostile.root(": >victim/empty; ln -f victim/empty app/data/meta.db");
        let before = hostile.victim();
        failed(
            hostile.verb(&["start"]),
            &["a hard link to a file of another user", "hint: ls -l "],
        );
        assert_eq!(hostile.victim(), before);
        hostile.down();
    });
}

#[test]
fn what_puts_files_back_follows_no_link_that_was_planted() {
    isolated(|place| {
        for plant in [
            "mv data/.synconce-aside-t-1 data/old; ln -s $victim data/.synconce-aside-t-1",
            "mv data/.synconce-aside-t-1 data/old; mv data/copy data/.synconce-aside-t-1",
            "mv data/.synconce-aside-t-1 data/old",
            "mv data old; ln -s $victim data",
            "ln -s $victim/mounted data/.synconce-aside-t-1/.synconce-replaced",
        ] {
            let hostile = Hostile::new(place);
            hostile.reach(When::SetAside);
            // Entrypoints of containers call `chown -R` like this.
            hostile.root("chown -R 4321 app/data/.synconce-aside-t-1");
            let journal = place.read("state/holds/t.aside.json");
            let journal: serde_json::Value = serde_json::from_str(&journal).expect("JSON");
            hostile.user(plant);
            let before = hostile.victim() + &hostile.files_of_root();
            for command in journal["put_back"].as_array().expect("commands") {
                let command = command.as_str().expect("a command");
                let done = place.bare(&["sh", "-c", command]);
                let is_said = done.stderr.contains(" was not put back: ");
                assert!(!done.status.success() && is_said, "{plant}: {command}: {done:?}");
            }
            assert_eq!(hostile.victim() + &hostile.files_of_root(), before, "{plant}");
            let said = failed(hostile.verb(&["restore"]), &["cannot "]);
            let has_remedy = said.contains("hint: ") || said.contains("  find ");
            assert!(has_remedy, "{plant}: {said}");
            assert_eq!(hostile.victim() + &hostile.files_of_root(), before, "{plant}");
            hostile.down();
        }
    });
}

#[test]
fn the_command_that_moves_a_directory_away_follows_no_link_that_was_planted() {
    isolated(|place| {
        let hostile = Hostile::new(place);
        // A directory of root, which the user has given the name of the directory of a hold.
        hostile.user("mv data/known data/.synconce-hold");
        let hint = |hostile: &Hostile<'_>| {
            let said = failed(hostile.verb(&["start"]), &["it has entries that no hold made"]);
            said.split_once("hint: ").expect("a hint").1.to_owned()
        };
        let command = hint(&hostile);
        for (plant, undo) in [
            (
                "mv data old; mkdir data; ln -s $victim data/.synconce-hold",
                "rm -r data; mv old data",
            ),
            ("mv data old; ln -s $victim data", "rm data; mv old data"),
            ("mv data old", "mv old data"),
        ] {
            hostile.user(plant);
            let before = hostile.victim() + &hostile.files_of_root();
            let done = place.bare(&["sh", "-c", &command]);
            assert!(!done.status.success() && done.stderr.contains("was not moved"), "{done:?}");
            assert_eq!(hostile.victim() + &hostile.files_of_root(), before, "{plant}");
            hostile.user(undo);
        }
        // What was moved away before stays.
        let scratch = hostile.app().join("data/.synconce-hold");
        fs::create_dir_all(scratch.join("db.foreign")).unwrap();
        fs::create_dir_all(scratch.join("meta.db.foreign")).unwrap();
        let mut typed = 0;
        while hostile.verb(&["start"]).status.code() != Some(0) {
            sh(place, &hint(&hostile));
            typed += 1;
            assert!(typed < 3, "a command that does not help");
        }
        assert!(hostile.files_of_root().contains(".foreign-2/"), "{}", hostile.files_of_root());
        hostile.down();
    });
}

/// Exchanges two names for ever (renameat2(2), RENAME_EXCHANGE).
const EXCHANGE: &str = "my ($call, $one, $two) = @ARGV; $| = 1; print qq(ready\\n);
    while (1) { syscall($call + 0, -100, $one, -100, $two, 2) }";

#[test]
fn nothing_elsewhere_is_changed_while_names_are_exchanged() {
    isolated(|place| {
        for (make, one, two) in [
            ("ln -s $victim data/link", "data/.synconce-hold", "data/link"),
            ("ln -s $victim data/link", "data/db", "data/link"),
            ("ln -s $victim/file data/link", "data/meta.db", "data/link"),
            ("ln -s $victim link", "data", "link"),
        ] {
            let hostile = Hostile::new(place);
            hostile.user(make);
            let before = hostile.victim();
            let user = ["--reuid", "4321", "--regid", "4321", "--clear-groups"];
            let call = libc::SYS_renameat2.to_string();
            let mut exchange = place.command("setpriv");
            exchange
                .args(user)
                .args(["perl", "-e", EXCHANGE, &call, one, two])
                .current_dir(hostile.app());
            let exchange = StartedCommand::new(&mut exchange);
            eventually("the exchange goes on", || exchange.text().contains("ready"));
            for _turn in 0..3 {
                for verb in ["start", "stop"] {
                    let done = hostile.verb(&[verb]);
                    assert!(matches!(done.status.code(), Some(0 | 125)), "{one}: {done:?}");
                }
                assert_eq!(hostile.victim(), before, "{one}");
            }
            end(exchange);
            hostile.down();
        }
    });
}
