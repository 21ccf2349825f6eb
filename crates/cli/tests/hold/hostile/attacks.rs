//! What the hostile user plants.

/// The state of the hold in which the user acts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    Off,
    Held,
    Interrupted,
    SetAside,
}

/// An attack of the user, and its outcome.
pub struct Attack {
    pub name: &'static str,
    pub when: When,
    /// Commands of the user, in the directory above `data`, which has the held files. `$victim`
    /// is a directory of root.
    pub plant: &'static str,
    /// The verb that finds what was planted, its exit code, and a part of its message.
    pub verb: &'static [&'static str],
    pub code: i32,
    pub said: &'static str,
    /// Commands of root, after which the hold ends in order.
    pub undo: &'static str,
}

const FOREIGN: &str = "root did not make";
const A_LINK: &str = "is a link";
const BACK: &str = "rm data; mv old data";
const SCRATCH_BACK: &str = "rm -r data/.synconce-hold; mv data/own data/.synconce-hold";
/// Said of a directory of root that the user has given the name of a directory of the hold.
const NOT_OF_HOLD: &str = "it has entries that no hold made";
const SWAP_KNOWN: &str = "mv data/.synconce-hold data/own; mv data/known data/.synconce-hold";
const KNOWN_BACK: &str = "mv data/.synconce-hold data/known; mv data/own data/.synconce-hold";

pub const ATTACKS: &[Attack] = &[
    attack(When::Off, "a link to a directory", "ln -s $victim data/.synconce-hold", 125, FOREIGN)
        .undone("rm data/.synconce-hold"),
    attack(
        When::Off,
        "a directory with a link for each held path",
        "mkdir data/.synconce-hold; ln -s $victim/db $victim/meta.db data/.synconce-hold",
        125,
        FOREIGN,
    )
    .undone("rm -r data/.synconce-hold"),
    attack(
        When::Off,
        "a directory with a link in the place of the upper directory",
        "mkdir -p data/.synconce-hold/db data/.synconce-hold/meta.db
         ln -s $victim data/.synconce-hold/db/work
         ln -s $victim data/.synconce-hold/meta.db/upper",
        125,
        FOREIGN,
    )
    .undone("rm -r data/.synconce-hold"),
    attack(When::Off, "a FIFO", "mkfifo data/.synconce-hold", 125, FOREIGN)
        .undone("rm data/.synconce-hold"),
    attack(When::Off, "a file", "echo >data/.synconce-hold", 125, FOREIGN)
        .undone("rm data/.synconce-hold"),
    attack(
        When::Off,
        "a directory with a mark and a note",
        "mkdir -p data/.synconce-hold/db/work/work/incompat/volatile
         ln -s \"$(cat /proc/sys/kernel/random/boot_id) 1-2-3 4 /sys/fs\" \
             data/.synconce-hold/db/started",
        125,
        FOREIGN,
    )
    .undone("rm -r data/.synconce-hold"),
    attack(
        When::Off,
        "a link above the held files",
        "mv data old; ln -s $victim data",
        125,
        "a link of the user 4321",
    )
    .undone(BACK),
    attack(
        When::Off,
        "a link in the place of the held directory",
        "mv data/db old; ln -s $victim data/db",
        125,
        "a symbolic link to",
    )
    .undone("rm data/db; mv old data/db"),
    attack(
        When::Off,
        "FIFOs and links with the names of databases' files",
        "mkfifo data/db/grastate.dat data/db/db
         ln -s $victim/file data/db/meta.properties
         ln -s /dev/full data/db/myid",
        0,
        "",
    )
    .undone("rm data/db/grastate.dat data/db/db data/db/meta.properties data/db/myid"),
    // The hold adds its own directories, and removes no other entry.
    attack(When::Off, "a directory of root", "mv data/plain data/.synconce-hold", 0, "")
        .undone("mv data/.synconce-hold/file data/file"),
    attack(
        When::Off,
        "a directory of root with the names of the held paths",
        "mv data/copy data/.synconce-hold",
        125,
        FOREIGN,
    )
    .undone("mv data/.synconce-hold data/copy"),
    attack(
        When::Off,
        "a directory of root with the names of a hold's directories",
        "mv data/known data/.synconce-hold",
        125,
        NOT_OF_HOLD,
    )
    .undone("mv data/.synconce-hold data/known"),
    attack(When::Off, "a directory for all users", "chmod 777 data", 125, "all users may write")
        .undone("chmod 755 data"),
    attack(
        When::Held,
        "a link to a directory, while held",
        "mv data/.synconce-hold data/own; ln -s $victim data/.synconce-hold",
        125,
        FOREIGN,
    )
    .undone(SCRATCH_BACK),
    attack(
        When::Held,
        "another work directory, while held",
        "mv data/.synconce-hold data/own
         mkdir -p data/.synconce-hold/db data/.synconce-hold/meta.db/upper
         ln -s $victim data/.synconce-hold/db/work
         ln -s $victim data/.synconce-hold/db/lower
         ln -s $victim/file data/.synconce-hold/meta.db/upper/meta.db",
        125,
        FOREIGN,
    )
    .undone(SCRATCH_BACK),
    attack(When::Held, "a directory of root, while held", SWAP_KNOWN, 125, NOT_OF_HOLD)
        .undone(KNOWN_BACK),
    attack(
        When::Held,
        "a link above the held files, to other mounts",
        "mv data old; ln -s $victim data",
        125,
        "",
    )
    .undone(BACK),
    attack(
        When::Interrupted,
        "a link to a directory, after a crash",
        "mv data/.synconce-hold data/own; ln -s $victim data/.synconce-hold",
        125,
        FOREIGN,
    )
    .undone(SCRATCH_BACK),
    attack(When::Interrupted, "a directory of root, after a crash", SWAP_KNOWN, 125, NOT_OF_HOLD)
        .undone(KNOWN_BACK),
    attack(
        When::Interrupted,
        "a link above the held files, after a crash",
        "mv data old; ln -s $victim data",
        125,
        "",
    )
    .undone(BACK),
    attack(
        When::Interrupted,
        "a link in the place of the held directory, after a crash",
        "mv data/db old; ln -s $victim data/db",
        125,
        "is not the file that was held",
    )
    .undone("rm data/db; mv old data/db"),
    attack(
        When::Interrupted,
        "names for files that are set aside",
        "ln -s $victim data/.synconce-aside-t-1; ln -s $victim data/.synconce-aside-t-2-replaced
         mkdir data/.synconce-aside-t-3; ln -s $victim/file data/.synconce-aside-t-3/README",
        0,
        "the files are set aside",
    ),
    attack(
        When::SetAside,
        "a link in the place of the files that are set aside",
        "mv data/.synconce-aside-t-1 data/old; ln -s $victim data/.synconce-aside-t-1",
        125,
        FOREIGN,
    )
    .undone("rm data/.synconce-aside-t-1; mv data/old data/.synconce-aside-t-1"),
    attack(
        When::SetAside,
        "a directory in the place of the files that are set aside",
        "mv data/.synconce-aside-t-1 data/old; mkdir data/.synconce-aside-t-1
         ln $PWD/data/meta.db data/.synconce-aside-t-1/README",
        125,
        FOREIGN,
    )
    .undone("rm -r data/.synconce-aside-t-1; mv data/old data/.synconce-aside-t-1"),
    attack(
        When::SetAside,
        "a directory of root in the place of the files that are set aside",
        "mv data/.synconce-aside-t-1 data/old; mv data/copy data/.synconce-aside-t-1",
        125,
        "another directory has its name now",
    )
    .undone("mv data/.synconce-aside-t-1 data/copy; mv data/old data/.synconce-aside-t-1"),
    attack(
        When::SetAside,
        "a directory of root with a name beside the files that are set aside",
        "mv data/plain data/.synconce-aside-t-1-replaced",
        0,
        "",
    ),
    attack(
        When::SetAside,
        "a link above the files that are set aside",
        "mv data old; ln -s $victim data",
        125,
        A_LINK,
    )
    .undone(BACK),
];

const fn attack(
    when: When,
    name: &'static str,
    plant: &'static str,
    code: i32,
    said: &'static str,
) -> Attack {
    let verb: &[&str] = match when {
        When::Off => &["start"],
        When::Held => &["stop"],
        When::Interrupted => &["recover"],
        When::SetAside => &["settle"],
    };
    Attack { name, when, plant, verb, code, said, undo: ":" }
}

impl Attack {
    const fn undone(self, undo: &'static str) -> Self {
        Self { undo, ..self }
    }
}
