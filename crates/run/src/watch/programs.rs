//! What the processes of a command are: triggers of dpkg, programs in an emulator, and clients of
//! engines.
//!
//! A thread looks at all processes of the command, up to a hundred times a second. A time is the
//! one between the first and the last look that found a process, so it is too short, never too
//! long. A process that ends between two looks is missed.

use super::line::{Client, Emulated, Trigger};
use crate::process::process_tree::{Walk, lineage, state};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use synconce_probe::emulator;

/// The time between two looks, if a look takes at most a fiftieth of it of the processor.
const PAUSE: Duration = Duration::from_millis(10);
const SHARE: u32 = 50;
/// Triggers of more packages, and more emulators, are not kept.
const KEPT: usize = 1_000;
/// Programs that have a daemon do the work. `doctor::command` has the daemon of each.
const CLIENTS: [&str; 6] =
    ["buildctl", "ctr", "docker", "docker-buildx", "docker-compose", "nerdctl"];

#[derive(Default)]
pub(super) struct Programs(Mutex<ProgramsSeen>);

#[derive(Default)]
struct ProgramsSeen {
    /// Triggers that the last look has found, by process and start.
    running: HashMap<(u32, u64), RunningTrigger>,
    /// Triggers that have ended, by package.
    triggers: BTreeMap<String, Trigger>,
    /// How often a process was found running.
    busy: u64,
    /// How often of these in an emulator, by its program.
    emulated: BTreeMap<String, u64>,
    clients: BTreeSet<Client>,
}

struct RunningTrigger {
    package: String,
    first: Instant,
    last: Instant,
}

/// What one look has found.
#[derive(Default)]
struct Look {
    triggers: Vec<((u32, u64), RunningTrigger)>,
    /// The processes of `triggers`, and those that their scripts have forked.
    of_triggers: HashSet<u32>,
    busy: u64,
    emulated: Vec<String>,
    clients: Vec<Client>,
}

impl Programs {
    /// Starts to look. The looks end when the value is dropped.
    pub(super) fn watched() -> Arc<Self> {
        let programs = Arc::<Self>::default();
        let looked_at = Arc::downgrade(&programs);
        // Without the thread there are no looks, and the report says less.
        let _ = thread::Builder::new().name("programs".into()).spawn(move || look_on(&looked_at));
        programs
    }

    /// Returns the triggers, emulators and clients that were found, for the last line of the
    /// record.
    pub(super) fn found(&self) -> (Vec<Trigger>, Vec<Emulated>, Vec<Client>) {
        let mut seen = self.lock();
        let ended = std::mem::take(&mut seen.running);
        ended.into_values().for_each(|trigger| seen.end(trigger));
        let of = seen.busy;
        let emulated = seen.emulated.iter();
        let emulated = emulated.map(|(by, looks)| Emulated { by: by.clone(), looks: *looks, of });
        let clients = seen.clients.iter().cloned().collect();
        (seen.triggers.values().cloned().collect(), emulated.collect(), clients)
    }

    fn lock(&self) -> MutexGuard<'_, ProgramsSeen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks until `programs` are dropped.
fn look_on(programs: &Weak<Programs>) {
    let mut pause = PAUSE;
    loop {
        thread::sleep(pause);
        // Not the time of day: on a busy machine, other processes would delay the next look.
        let began = processor_time();
        let Some(look) = Look::now(Instant::now()) else { return };
        let Some(programs) = programs.upgrade() else { return };
        programs.lock().add(look);
        pause = PAUSE.max(processor_time().saturating_sub(began) * SHARE);
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_secs(time.tv_sec.cast_unsigned())
        + Duration::from_nanos(time.tv_nsec.cast_unsigned())
}

impl Look {
    /// Looks at the processes of the command. Returns `None` if the kernel lists no children.
    fn now(began: Instant) -> Option<Self> {
        let mut look = Self::default();
        for (process, threads) in Walk::over_ours()? {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            look.clients.extend(client(&line));
            look.add_trigger(process, &line, began);
            if threads.iter().any(|thread| state(process, *thread) == Some('R')) {
                look.busy += 1;
                let exe = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
                look.emulated.extend(emulator(&exe));
            }
        }
        Some(look)
    }

    fn add_trigger(&mut self, process: u32, command_line: &[u8], began: Instant) {
        let Some(package) = package_of_trigger(command_line) else { return };
        let Some((parent, started)) = lineage(process) else { return };
        // A shell forks with its command line, and debconf's frontend starts the script again.
        if self.of_triggers.insert(process) && !self.of_triggers.contains(&parent) {
            let trigger = RunningTrigger { package, first: Instant::now(), last: began };
            self.triggers.push(((process, started), trigger));
        }
    }
}

impl ProgramsSeen {
    fn add(&mut self, look: Look) {
        let mut before = std::mem::take(&mut self.running);
        for (key, trigger) in look.triggers {
            let first = before.remove(&key).map_or(trigger.first, |known| known.first);
            self.running.insert(key, RunningTrigger { first, ..trigger });
        }
        before.into_values().for_each(|trigger| self.end(trigger));
        self.busy += look.busy;
        self.clients.extend(look.clients);
        for by in look.emulated {
            if self.emulated.len() < KEPT || self.emulated.contains_key(&by) {
                *self.emulated.entry(by).or_default() += 1;
            }
        }
    }

    fn end(&mut self, RunningTrigger { package, first, last }: RunningTrigger) {
        if self.triggers.len() >= KEPT && !self.triggers.contains_key(&package) {
            return;
        }
        let took = last.saturating_duration_since(first).as_micros();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let new = || Trigger { package: package.clone(), runs: 0, micros: 0, longest: 0 };
        let trigger = self.triggers.entry(package.clone()).or_insert_with(new);
        trigger.runs += 1;
        trigger.micros = trigger.micros.saturating_add(took);
        trigger.longest = trigger.longest.max(took);
    }
}

/// Returns the package whose trigger a process with `command_line` (proc_pid_cmdline(5)) handles:
/// dpkg starts `INFO/PACKAGE.postinst triggered NAMES` (deb-postinst(5)).
fn package_of_trigger(command_line: &[u8]) -> Option<String> {
    let words: Vec<_> = command_line.split(|byte| *byte == 0).collect();
    let of_pair = |pair: &[&[u8]]| {
        let script = Path::new(OsStr::from_bytes(pair[0])).file_name()?.to_str()?;
        let package = script.strip_suffix(".postinst").filter(|_| pair[1] == b"triggered")?;
        // `libgdk-pixbuf-2.0-0:amd64`
        package.split(':').next().map(str::to_owned)
    };
    words.windows(2).find_map(of_pair)
}

/// Returns the client of an engine whose command line (proc_pid_cmdline(5)) this is. Its words are
/// left out, because they may have a password.
fn client(command_line: &[u8]) -> Option<Client> {
    let mut words = command_line.split(|byte| *byte == 0);
    let name = Path::new(OsStr::from_bytes(words.next()?)).file_name()?.to_str()?;
    let program = CLIENTS.into_iter().find(|client| *client == name)?;
    Some(Client { program, builds: words.any(|word| word == b"build") })
}

/// Returns the emulator's name if `exe` is one that runs a program of another architecture.
fn emulator(exe: &Path) -> Option<String> {
    let name = exe.file_name()?.to_str()?.trim_end_matches(" (deleted)");
    let is_other = [".buildkit_qemu_emulator", "rosetta"].contains(&name);
    (is_other || emulator::architecture(name).is_some()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_known_by_the_words_that_dpkg_starts_it_with() {
        for (words, wanted) in [
            (
                "/bin/sh\0-e\0/var/lib/dpkg/info/man-db.postinst\0triggered\0/usr/share/man\0",
                "man-db",
            ),
            (
                "/var/lib/dpkg/info/libgdk-pixbuf-2.0-0:amd64.postinst\0triggered\0x\0",
                "libgdk-pixbuf-2.0-0",
            ),
            ("perl\0frontend\0/i/x.postinst\0triggered\0a\0", "x"),
            ("/bin/sh\0/var/lib/dpkg/info/man-db.postinst\0configure\x002.11\0", ""),
            ("grep\0triggered\0man-db.postinst\0", ""),
            ("triggered\0", ""),
            ("", ""),
        ] {
            assert_eq!(package_of_trigger(words.as_bytes()).unwrap_or_default(), wanted, "{words}");
        }
    }

    #[test]
    fn a_client_of_an_engine_is_known_by_the_name_that_it_was_started_by() {
        for (words, wanted) in [
            ("/usr/bin/docker\0build\0.\0", Some(("docker", true))),
            ("docker\0login\0-p\0secret\0", Some(("docker", false))),
            ("nerdctl\0-n\0x\0build\0", Some(("nerdctl", true))),
            ("sh\0-c\0docker build .\0", None),
            ("sudo\0docker\0build\0", None),
            ("dockerd\0", None),
            ("", None),
        ] {
            let found = client(words.as_bytes()).map(|client| (client.program, client.builds));
            assert_eq!(found, wanted, "{words}");
        }
    }

    #[test]
    fn an_emulator_is_known_also_when_its_file_is_gone() {
        for (exe, wanted) in [
            ("/usr/bin/qemu-arm", Some("qemu-arm")),
            ("/x/qemu-s390x-static (deleted)", Some("qemu-s390x-static")),
            ("/run/rosetta/rosetta", Some("rosetta")),
            ("/bin/sh", None),
            ("", None),
        ] {
            assert_eq!(emulator(Path::new(exe)).as_deref(), wanted, "{exe}");
        }
    }

    #[test]
    fn runs_of_a_trigger_are_added_up_from_the_first_look_to_the_last() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let look = |process: u32, millis: u64| {
            let trigger = RunningTrigger {
                package: "man-db".to_owned(),
                first: at(millis + 1),
                last: at(millis),
            };
            Look { triggers: vec![((process, 7), trigger)], busy: 2, ..Look::default() }
        };
        let programs = Programs::default();
        for look in
            [look(1, 10), look(1, 30), look(1, 51), Look::default(), look(2, 70), look(2, 81)]
        {
            programs.lock().add(look);
        }
        let (triggers, emulated, clients) = programs.found();
        let wanted = ("man-db", 2, 50_000, 40_000);
        let found = &triggers[0];
        assert_eq!((&*found.package, found.runs, found.micros, found.longest), wanted);
        assert!(triggers.len() == 1 && emulated.is_empty() && clients.is_empty());
        assert_eq!(programs.lock().busy, 10);
    }
}
