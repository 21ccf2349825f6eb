//! Build tools that leave the work to a daemon, which may be older than the run.

use super::inner_command::find_in_inner_command;
use crate::commands::wrappers::file_name;
use crate::text::shell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_sys::procfs::{self, Stat};

/// The daemon of a build tool.
#[derive(Debug)]
pub(super) struct BuildDaemon {
    /// With the pid, if there is one such daemon.
    pub(super) name: String,
    /// The command line that ends the daemon.
    pub(super) stop: String,
}

/// Returns the daemon that may have done the work of `command`, if it is a build and the daemon was
/// started before this process. A newer daemon of the tool is one that the run has started. Which
/// of several daemons a tool takes, and whether it takes one, only the tool knows.
pub(super) fn older_than_run(command: &[OsString]) -> Option<BuildDaemon> {
    let words: Vec<_> = command.iter().filter_map(|word| word.to_str()).collect();
    // The daemon belongs to the user of the tool.
    let changes_user = |word: &str| ["doas", "runuser", "su", "sudo"].contains(&file_name(word));
    if words.iter().flat_map(|word| word.split_whitespace()).any(changes_user) {
        return None;
    }
    let (tool, stop) =
        find_in_inner_command(&words, &|_| None, &|path, words, _| tool_of(path, words))?;
    let own = Stat::of_this_process()?.began()?;
    let daemons: Vec<_> = procfs::pids().filter(|pid| tool.is_daemon(*pid)).collect();
    let is_older =
        |pid: &u32| Stat::read(*pid).and_then(|stat| stat.began()).is_some_and(|began| began < own);
    if !daemons.iter().all(is_older) {
        return None;
    }
    let name = match daemons[..] {
        [] => return None,
        [pid] => format!("{} (pid {pid})", tool.name()),
        _ => tool.name().to_owned(),
    };
    Some(BuildDaemon { name, stop })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Bazel,
    Gradle,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Bazel => "the Bazel server",
            Self::Gradle => "the Gradle daemon",
        }
    }

    /// Whether the process is a daemon of this tool that the user of this process can end: it
    /// belongs to the user, and is in no other container.
    fn is_daemon(self, pid: u32) -> bool {
        let is_own = fs::metadata(format!("/proc/{pid}"))
            .is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw());
        if !is_own {
            return false;
        }
        let words = procfs::words(pid, "cmdline").unwrap_or_default();
        let is_tool = match self {
            // The server's name for itself has that of the workspace.
            Self::Bazel => words.first().is_some_and(|word| word.starts_with("bazel(")),
            Self::Gradle => words.iter().any(|word| word == GRADLE),
        };
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
        is_tool && namespace(&pid.to_string()).is_some_and(|its| Some(its) == namespace("self"))
    }
}

/// The main class of a Gradle daemon.
const GRADLE: &str = "org.gradle.launcher.daemon.bootstrap.GradleDaemon";
/// The commands of Bazel that build.
const BUILDS: [&str; 4] = ["build", "coverage", "run", "test"];
/// Other commands of Bazel (`bazel help`), whose words may be those of [`BUILDS`].
const OTHERS: [&str; 16] = [
    "analyze-profile",
    "aquery",
    "canonicalize-flags",
    "clean",
    "cquery",
    "dump",
    "fetch",
    "help",
    "info",
    "license",
    "mobile-install",
    "mod",
    "print_action",
    "query",
    "sync",
    "vendor",
];
/// Tasks of Gradle that only report (`gradle help`).
const REPORTS: [&str; 10] = [
    "buildEnvironment",
    "dependencies",
    "dependencyInsight",
    "help",
    "javaToolchains",
    "outgoingVariants",
    "projects",
    "properties",
    "resolvableConfigurations",
    "tasks",
];
/// Options with which no daemon builds.
const WITHOUT_DAEMON: [&str; 10] = [
    "--batch",
    "--dry-run",
    "--help",
    "--no-daemon",
    "--status",
    "--stop",
    "--version",
    "-h",
    "-m",
    "-v",
];

/// Returns the tool at `path` whose daemon builds with the arguments `words`, and the command line
/// that ends the daemon.
fn tool_of(path: &str, words: &[&str]) -> Option<(Tool, String)> {
    if words.iter().any(|word| WITHOUT_DAEMON.contains(word)) {
        return None;
    }
    let line = |options: &[&str], stop: &str| {
        let words = [&[path], options, &[stop]].concat();
        shell(&words.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    match file_name(path) {
        "gradle" | "gradlew" => {
            let mut tasks = words.iter().filter(|word| !word.starts_with('-')).peekable();
            // The tasks of a project are behind its path, as in `:app:tasks`.
            let reports =
                |task: &&str| REPORTS.iter().any(|it| task.rsplit(':').next() == Some(it));
            let only_reports = tasks.peek().is_some() && tasks.all(reports);
            (!only_reports).then(|| (Tool::Gradle, line(&[], "--stop")))
        }
        "bazel" | "bazelisk" => {
            // The options before the verb choose the server.
            let is_verb = |word: &&str| BUILDS.contains(word) || OTHERS.contains(word);
            let verb = words.iter().position(is_verb).filter(|at| BUILDS.contains(&words[*at]))?;
            Some((Tool::Bazel, line(&words[..verb], "shutdown")))
        }
        _ => None,
    }
}
