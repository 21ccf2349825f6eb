//! Kills of a real dockerd and of everything below it, at random moments of builds.
//!
//! Each round starts a build of steps that no round before had, and kills one process. The next
//! build may use what dockerd has recorded of the killed one, as a user's next build does, and
//! prints a digest of all files.

use super::dockerd_on_disk::{DockerdOnDisk, overlays, volatile_roots};
use crate::engines::docker::Docker;
use crate::engines::{Given, report};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use synconce_testkit::harness::{Place, binary, eventually, exists, finish, process_status};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, Group};

/// How many processes are killed; the environment can set another number.
const KILLS: &str = "SYNCONCE_ENGINE_KILLS";
/// Which moments and processes are chosen.
const SEED: &str = "SYNCONCE_ENGINE_SEED";
/// If it is set, runc alone is the runtime: shows which findings are the engine's own.
const PLAIN: &str = "SYNCONCE_ENGINE_PLAIN";
/// After so many rounds dockerd removes images and caches that are not used any more.
const ROUNDS_TO_PRUNE: u64 = 10;
/// How many microseconds after its start a process is killed, at most.
const LATER: u64 = 30_000;
/// How long a build may take after a kill.
const PATIENCE: Duration = Duration::from_secs(30);
/// The layers below the steps.
const BASE: &str = "FROM scratch\nCOPY busybox /bin/\nCOPY data /data\n";
/// Prints a digest of the names, owners, modes and contents of all files.
const DIGEST: &str = "busybox find /data /copied /bin -exec busybox stat -c '%n %F %a %u %g' {} + \
    | busybox sort >/tmp.list; busybox find /data /copied -type f -exec busybox md5sum {} + \
    | busybox sort >>/tmp.list; echo \\\"digest $(busybox md5sum </tmp.list)\\\"";

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Dockerd,
    Containerd,
    Shim,
    Synconce,
    Runc,
    Step,
}

use Victim::{Containerd, Dockerd, Runc, Shim, Step, Synconce};

const VICTIMS: [Victim; 6] = [Dockerd, Containerd, Shim, Synconce, Runc, Step];

impl Victim {
    /// Whether `program` is the executable of such a process.
    fn is(self, program: &Path) -> bool {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.trim_end_matches(" (deleted)");
        match self {
            Dockerd => name == "dockerd",
            Containerd => name == "containerd",
            Shim => name.starts_with("containerd-shim"),
            Synconce => fs::canonicalize(binary()).is_ok_and(|ours| program == ours),
            Runc => name == "runc",
            Step => name == "busybox",
        }
    }

    /// Returns the processes of this kind.
    fn find(self) -> Vec<Pid> {
        let executable = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        // runc executes a copy of itself without a path, and changes its name.
        let is_copy = |pid: u32| {
            process_status(pid).get("Name").is_some_and(|name| name.starts_with("runc:"))
        };
        let is = |pid: &u32| {
            let program = executable(*pid);
            program.is_some_and(|program| self.is(&program) || self == Runc && is_copy(*pid))
        };
        pids().filter(is).filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect()
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Numbers that a seed determines (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the Dockerfile of a round.
fn dockerfile(round: u64) -> String {
    let steps = [
        "busybox chown -R 1:1 /data; busybox sync /data/2",
        "busybox rm /data/1; busybox cp -r /data /copied; echo more >>/data/2",
        DIGEST,
    ];
    let steps = steps.map(|step| {
        format!("RUN [\"/bin/busybox\", \"sh\", \"-ec\", \"{step}\", \"round {round}\"]\n")
    });
    format!("FROM base\n{}", steps.concat())
}

/// Builds the image `probed`, and returns the digest that its last step prints; `None` if the build
/// used the layer of that step. Returns a build that failed as the error.
fn digest(docker: &Docker<'_>, buildkit: &str) -> Result<Option<String>, Finished> {
    let mut client = docker.command(buildkit);
    client.args(["build", "--network", "none", "--tag", "probed"]);
    if buildkit == "1" {
        client.args(["--progress", "plain"]);
    }
    let build = finish(client.arg("context"));
    if !build.status.success() {
        return Err(build);
    }
    let printed = format!("{}{}", build.stdout, build.stderr);
    let mut digests = printed.lines().filter_map(|line| line.split("digest ").nth(1));
    // The command of the step has the word as well.
    Ok(digests.find(|digest| !digest.contains("busybox")).map(str::to_owned))
}

/// Returns the digest of the next build after the kill of `victim`.
fn next_digest(docker: &Docker<'_>, buildkit: &str, victim: Victim) -> Option<String> {
    if victim == Containerd {
        // dockerd starts another containerd, and starts no container until then.
        let ordinary = || docker.run_of("base", &[], &["/bin/busybox", "true"]);
        eventually("dockerd has another containerd", || ordinary().status.success());
    }
    let found = digest(docker, buildkit);
    found.unwrap_or_else(|build| panic!("{victim:?}: {build:?}"))
}

/// What happened.
#[derive(Debug, Default)]
struct KillTally {
    kills: BTreeMap<(&'static str, Victim), u64>,
    /// Builds with a kill that failed.
    failed: u64,
    /// Builds for which dockerd waits for ever.
    hung: u64,
    /// Digests of next builds that are right; the others used the layers of the build with the
    /// kill.
    digests: u64,
    /// Volatile roots that outlived a killed dockerd.
    roots_of_killed_dockerd: usize,
    /// Prunes that BuildKit refused.
    prunes_refused: usize,
}

pub fn go_on_after_two_hundred_kills_of_everything(place: &Place) {
    // The victims are found by name: no process of the machine may be in sight.
    assert_eq!(std::process::id(), 1, "not in a pid namespace of its own");
    let (kills, seed) = (number(KILLS, 200), number(SEED, 88_172_645_463_325_252));
    let mut random = Random(seed);
    let is_plain = std::env::var_os(PLAIN).is_some();
    let world = DockerdOnDisk::with(place, if is_plain { Given::Runc } else { Given::Us });
    let mut docker = Some(world.start());
    let base = world.build(&docker.as_ref().unwrap().classic(), BASE, &[]);
    assert!(base.status.success(), "{base:?}");
    let tagged = docker.as_ref().unwrap().client("1", &["tag", "probed", "base"]);
    assert!(tagged.status.success(), "{tagged:?}");
    let expected = ["1", "0"].map(|buildkit| {
        place.write("context/Dockerfile", &dockerfile(kills));
        let started = Instant::now();
        let found = digest(docker.as_ref().unwrap(), buildkit).unwrap();
        (buildkit, found.expect("no layer is used"), started.elapsed())
    });
    assert_eq!(expected[0].1, expected[1].1);
    let mut tally = KillTally::default();
    for round in 0..kills {
        let (buildkit, wanted, duration) = &expected[usize::from(random.below(2) == 0)];
        place.write("context/Dockerfile", &dockerfile(round));
        let victim = build_with_kill(&mut docker, (buildkit, *duration), &mut random, &mut tally);
        println!("round {round}: builder {buildkit}, {victim:?}");
        tally.roots_of_killed_dockerd += end_of_dead_engine(docker.is_none());
        let docker = docker.get_or_insert_with(|| world.start());
        if let Some(digest) = next_digest(docker, buildkit, victim) {
            assert_eq!(digest, *wanted, "round {round}: {victim:?}");
            tally.digests += 1;
        }
        assert_no_recorded_layer_is_marked(&world, round);
        reap();
        if round % ROUNDS_TO_PRUNE == ROUNDS_TO_PRUNE - 1 {
            tally.prunes_refused += prune(docker);
        }
    }
    let docker = docker.unwrap();
    prune(&docker);
    assert_eq!(marked(&world), BTreeSet::new(), "no layer of a removed container is left");
    docker.stop();
    let left = overlays().len();
    let orphans = end_orphans();
    report(&format!(
        "{kills} kills, seed {seed}: {tally:?}; {left} overlays and {orphans:?} outlive dockerd"
    ));
    assert!(!orphans.contains_key(&Synconce), "synconce waits for nothing");
    eventually("nothing is mounted", || overlays().is_empty());
    world.end();
}

/// Builds the image `killed` by a builder that takes about `duration`, and kills a process
/// meanwhile.
fn build_with_kill(
    docker: &mut Option<Docker<'_>>,
    (buildkit, duration): (&'static str, Duration),
    random: &mut Random,
    tally: &mut KillTally,
) -> Victim {
    let mut client = docker.as_ref().unwrap().command(buildkit);
    client.args(["build", "--network", "none", "--tag", "killed", "context"]);
    let client = Group::spawn(&mut client).unwrap();
    let moment = random.below(u64::try_from(duration.as_micros()).unwrap());
    std::thread::sleep(Duration::from_micros(moment));
    let victim = kill(docker, &client, random);
    *tally.kills.entry((buildkit, victim)).or_default() += 1;
    match client.wait(patiently(PATIENCE)).unwrap() {
        Some(status) => tally.failed += u64::from(!status.success()),
        // dockerd waits for ever for some steps of a killed containerd, with runc alone, too.
        None if victim == Containerd => tally.hung += 1,
        None => panic!("the client waits for ever after the kill of {victim:?}"),
    }
    victim
}

/// Kills a process of a kind that `random` chooses, once there is one, or dockerd if the build of
/// `client` ends before. A killed dockerd is taken away.
fn kill(docker: &mut Option<Docker<'_>>, client: &Group, random: &mut Random) -> Victim {
    let victim = VICTIMS[usize::try_from(random.below(6)).unwrap()];
    while victim != Dockerd && client.wait(Duration::ZERO).unwrap().is_none() {
        if victim.find().is_empty() {
            continue;
        }
        std::thread::sleep(Duration::from_micros(random.below(LATER)));
        // An orphan of an earlier round may still run, so the newest process is taken.
        let found = victim.find();
        if found.last().is_some_and(|pid| kill_process(*pid, Signal::KILL).is_ok()) {
            return victim;
        }
    }
    docker.take().unwrap().kill();
    Dockerd
}

/// Unmounts what a dead dockerd has left, once its steps have ended, and returns how many volatile
/// roots there were. No engine unmounts them: a step of BuildKit runs on, as with runc alone.
fn end_of_dead_engine(is_dead: bool) -> usize {
    if !is_dead {
        return 0;
    }
    eventually("the steps end", || {
        reap();
        [Step, Synconce].iter().all(|victim| victim.find().is_empty())
    });
    let left: BTreeSet<_> = volatile_roots().into_iter().collect();
    eventually("the roots can be unmounted", || {
        for root in overlays().iter().rev() {
            let _ = unmount(root, UnmountFlags::empty());
        }
        overlays().is_empty()
    });
    left.len()
}

/// Kills and reaps what killed engines and runtimes have left; returns how many of each kind.
fn end_orphans() -> BTreeMap<Victim, usize> {
    let kinds = [Shim, Synconce, Runc, Step];
    let found = kinds.map(|kind| (kind, kind.find().len()));
    eventually("the orphans end", || {
        let left: Vec<_> = kinds.iter().flat_map(|kind| kind.find()).collect();
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        reap();
        left.is_empty()
    });
    found.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Reaps the orphans: the test is the first process of its pid namespace.
fn reap() {
    let own = std::process::id().to_string();
    for pid in pids().filter(|pid| !exists(*pid)) {
        let status = process_status(pid);
        let is_orphan = ["containerd-shim", "busybox", "runc", "synconce"]
            .iter()
            .any(|name| status.get("Name").is_some_and(|it| it.starts_with(name)));
        if is_orphan && status.get("PPid") == Some(&own) {
            let pid = Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}

/// Returns the layers whose work directory the kernel refuses to mount.
fn marked(world: &DockerdOnDisk<'_>) -> BTreeSet<String> {
    let layers = entries(&world.site.storage.join("docker/overlay2"));
    let marked = layers.iter().filter(|layer| layer.join("work/work/incompat/volatile").exists());
    marked.map(|layer| layer.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// A layer of an image has no mark, nor has one of BuildKit's cache. A container that the engine
/// could not end may have one: no image has its layer.
fn assert_no_recorded_layer_is_marked(world: &DockerdOnDisk<'_>, round: u64) {
    let layers = world.site.storage.join("docker/image/overlay2/layerdb/mounts");
    let of_containers = entries(&layers).into_iter().filter_map(|container| {
        Some(fs::read_to_string(container.join("mount-id")).ok()?.trim().to_owned())
    });
    let of_containers: BTreeSet<_> = of_containers.collect();
    let wrong: Vec<_> = marked(world).difference(&of_containers).cloned().collect();
    assert!(wrong.is_empty(), "round {round}: {wrong:?}");
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes what is not used any more. Returns how often BuildKit refused, because a lease of its
/// cache was gone (moby issue 40480).
fn prune(docker: &Docker<'_>) -> usize {
    for words in [["container", "prune", "--force"], ["image", "prune", "--force"]] {
        let pruned = docker.client("1", &words);
        assert!(pruned.status.success(), "{words:?}: {pruned:?}");
    }
    let pruned = docker.client("1", &["builder", "prune", "--all", "--force"]);
    let is_known = pruned.stderr.contains("lease") && pruned.stderr.contains("not found");
    assert!(pruned.status.success() || is_known, "{pruned:?}");
    usize::from(!pruned.status.success())
}
