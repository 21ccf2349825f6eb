//! The measured engines as data: their programs, how they are compiled, and how they are held.

use crate::command::words;
use crate::scenario::Need;

/// An engine.
pub(super) struct DatabaseEngine {
    /// The first part of the variants' names.
    pub(super) name: &'static str,
    /// What the program does, in the variants' descriptions.
    pub(super) about: &'static str,
    /// The program's source; `None` is a program that is named by an option.
    pub(super) source: Option<ProgramSource>,
    /// What the source needs on the host.
    pub(super) needs: &'static [Needed],
    /// The kind of a hold. A `bolt` is one file, every other kind is a directory.
    pub(super) kind: &'static str,
    /// Whether the program starts a server, which is what is held.
    pub(super) has_server: bool,
}

/// A program or file that must exist, with the package that contains it.
pub(super) enum Needed {
    Program(&'static str, &'static str),
    File(&'static str, &'static str),
}

impl Needed {
    pub(super) fn need(&self) -> Need {
        match self {
            Self::Program(name, package) => Need::new(name, package),
            Self::File(path, package) => Need::file(path, package),
        }
    }
}

/// The source of a program.
pub(super) struct ProgramSource {
    /// The name of the source's file.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    compiler: Compiler,
}

enum Compiler {
    /// Go, with the packages that Debian installs, without a network.
    Go,
    /// C, linked with a library.
    C(&'static str),
}

impl ProgramSource {
    /// Returns the command that compiles the source `{file}` to `{program}`.
    pub(super) fn command(&self) -> Vec<String> {
        match self.compiler {
            Compiler::Go => words(&[
                "env",
                "GO111MODULE=off",
                "GOFLAGS=",
                "GOTOOLCHAIN=local",
                "CGO_ENABLED=0",
                "GOPATH=/usr/share/gocode",
                "go",
                "build",
                "-o",
                "{program}",
                "{file}",
            ]),
            Compiler::C(library) => words(&["cc", "-O2", "-o", "{program}", "{file}", library]),
        }
    }
}

const GO: Needed = Needed::Program("go", "golang-go");
const CC: Needed = Needed::Program("cc", "gcc");

pub(super) const ENGINES: [DatabaseEngine; 5] = [
    DatabaseEngine {
        name: "bolt",
        about: "bbolt",
        source: Some(ProgramSource {
            file: "bolt.go",
            text: include_str!("programs/bolt.go"),
            compiler: Compiler::Go,
        }),
        needs: &[
            GO,
            Needed::File(
                "/usr/share/gocode/src/go.etcd.io/bbolt/db.go",
                "golang-github-coreos-bbolt-dev",
            ),
        ],
        kind: "bolt",
        has_server: false,
    },
    DatabaseEngine {
        name: "sqlite",
        about: "SQLite in WAL mode, synchronous=FULL or OFF",
        source: Some(ProgramSource {
            file: "sqlite.c",
            text: include_str!("programs/sqlite.c"),
            compiler: Compiler::C("-lsqlite3"),
        }),
        needs: &[CC, Needed::File("/usr/include/sqlite3.h", "libsqlite3-dev")],
        kind: "sqlite",
        has_server: false,
    },
    DatabaseEngine {
        name: "lmdb",
        about: "LMDB",
        source: Some(ProgramSource {
            file: "lmdb.c",
            text: include_str!("programs/lmdb.c"),
            compiler: Compiler::C("-llmdb"),
        }),
        needs: &[CC, Needed::File("/usr/include/lmdb.h", "liblmdb-dev")],
        kind: "lmdb",
        has_server: false,
    },
    DatabaseEngine {
        name: "redb",
        about: "redb",
        source: None,
        needs: &[],
        kind: "other",
        has_server: false,
    },
    DatabaseEngine {
        name: "etcd",
        about: "etcd with a single member, over its gateway",
        source: Some(ProgramSource {
            file: "etcd.go",
            text: include_str!("programs/etcd.go"),
            compiler: Compiler::Go,
        }),
        needs: &[GO],
        kind: "etcd",
        has_server: true,
    },
];

/// Returns the engine of a variant.
pub(super) fn engine_of(variant: &str) -> Option<&'static DatabaseEngine> {
    let (name, _) = variant.split_once('/')?;
    ENGINES.iter().find(|engine| engine.name == name)
}
