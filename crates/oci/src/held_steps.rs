//! Counts of the held build steps since the boot, and of those with a volatile root, in memory
//! (`/run/synconce/steps`).
//!
//! Each engine has five files. Three are counts (see [`synconce_durable::count`]): of held steps,
//! of steps whose root was made volatile, and of steps whose root stayed as the engine mounted it.
//! The last two counts include steps that were not held. Two are records: the last step, and why
//! the last root stayed as mounted. Records have a fixed length.

use crate::classify::{CallContext, Reason, Treatment};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use synconce_durable::{count, standard_paths, state_file};

/// The length of a record.
const LENGTH: usize = 1024;
/// The bytes of a text that a record keeps.
const TEXT: usize = 400;

/// The held build steps of one engine since the boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldSteps {
    /// docker, buildkit or podman (also for Buildah).
    pub engine: &'static str,
    /// The number of held steps.
    pub count: u64,
    /// The number of steps, held or not, whose root synconce made volatile; 0 for podman, which
    /// does it itself.
    pub volatile: u64,
    /// The number of steps, held or not, whose root should have been volatile but stayed as the
    /// engine mounted it.
    pub as_mounted: u64,
    /// Why the root of the last of these steps stayed; `None` if there is no such step, or the
    /// reason is not known.
    pub as_mounted_reason: Option<String>,
    /// The last held step, or the last with a volatile root; `None` if it is not known.
    pub last: Option<LastStep>,
}

/// The last held step of an engine, or the last with a volatile root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    /// When it began, in seconds since 1970.
    pub time: u64,
    /// The image that it was made from, where the engine says it to the runtime.
    pub image: Option<String>,
}

const ENGINES: [&str; 3] = ["docker", "buildkit", "podman"];

/// Returns what to note of a build step; `None` of any other container. A step that is left only
/// because of [`Reason::Outliving`] counts.
pub(crate) fn step(
    context: &CallContext<'_>,
    verdict: &Treatment,
) -> Option<(&'static str, LastStep)> {
    let (Treatment::Hold(reason) | Treatment::Leave(reason @ Reason::Outliving(_))) = verdict
    else {
        return None;
    };
    let classic =
        || context.records().filter(|it| it.is_classic_build()).map(|_| Reason::ClassicBuild);
    let step = matches!(reason, Reason::Rule(_) | Reason::Outliving(_))
        .then(|| context.build().or_else(classic))
        .flatten();
    let engine = match step.as_ref().unwrap_or(reason) {
        Reason::BuildKit if is_of_dockerd(context) => "docker",
        Reason::BuildKit | Reason::BuildKitOnContainerd => "buildkit",
        Reason::ClassicBuild => "docker",
        Reason::Buildah => "podman",
        _ => return None,
    };
    let annotations = &context.facts.annotations;
    let image = annotations.get("org.opencontainers.image.base.name").cloned();
    let image = image.or_else(|| context.records().map(|records| records.image_id().to_owned()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Some((engine, LastStep { time: now.as_secs(), image: image.map(|image| shortened(&image)) }))
}

/// Whether a step of BuildKit's runc worker is one of dockerd: `DATA/buildkit/executor`, where
/// buildkitd has `DATA/runc-SNAPSHOTTER/executor`.
fn is_of_dockerd(context: &CallContext<'_>) -> bool {
    let worker = context.bundle.ancestors().nth(2).and_then(Path::file_name);
    worker.is_some_and(|name| name == "buildkit")
}

/// Returns the beginning of `text` that fits a record, also in JSON.
fn shortened(text: &str) -> String {
    let end = (0..=TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].replace(|c: char| c.is_control(), "?")
}

/// Notes a held step of `engine`. A note that fails is missing, and nothing else.
pub(crate) fn note(engine: &str, step: &LastStep) {
    if let Some(directory) = directory() {
        let _ = note_in(&directory, engine, step);
    }
}

/// Notes that a step of `engine` has a volatile root: `unheld`, or the step that was noted before.
pub(crate) fn note_volatile(engine: &str, unheld: Option<&LastStep>) {
    if let Some(directory) = directory() {
        let _ = note_volatile_in(&directory, engine, unheld);
    }
}

fn note_volatile_in(directory: &Path, engine: &str, unheld: Option<&LastStep>) -> io::Result<()> {
    count::make_directory(directory)?;
    count::add_one(&volatile(directory, engine))?;
    unheld.map_or(Ok(()), |step| record(&last(directory, engine), step))
}

/// Notes that the root of a step of `engine` stays as the engine mounted it, though it was to be
/// volatile, and `why`.
pub(crate) fn note_as_mounted(engine: &str, why: &str) {
    if let Some(directory) = directory() {
        let _ = note_as_mounted_in(&directory, engine, why);
    }
}

fn note_as_mounted_in(directory: &Path, engine: &str, why: &str) -> io::Result<()> {
    count::make_directory(directory)?;
    count::add_one(&as_mounted(directory, engine))?;
    record(&reason(directory, engine), &shortened(why))
}

fn note_in(directory: &Path, engine: &str, step: &LastStep) -> io::Result<()> {
    count::make_directory(directory)?;
    count::add_one(&directory.join(engine))?;
    record(&last(directory, engine), step)
}

/// Writes `content` as the record in the file `path`.
fn record(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut record = serde_json::to_vec(content)?;
    // Blanks after the content: a shorter record leaves nothing of a longer one.
    record.resize(LENGTH, b' ');
    count::open(OpenOptions::new().write(true), path)?.write_all_at(&record, 0)
}

/// Returns the record in the file `path`, if it can be read.
fn read_record<Content: DeserializeOwned>(path: &Path) -> Option<Content> {
    state_file::open(path).ok().and_then(|file| state_file::read(&file).ok())
}

fn last(directory: &Path, engine: &str) -> PathBuf {
    directory.join(format!("{engine}.last"))
}

fn volatile(directory: &Path, engine: &str) -> PathBuf {
    directory.join(format!("{engine}.volatile"))
}

fn as_mounted(directory: &Path, engine: &str) -> PathBuf {
    directory.join(format!("{engine}.as-mounted"))
}

fn reason(directory: &Path, engine: &str) -> PathBuf {
    directory.join(format!("{engine}.reason"))
}

fn directory() -> Option<PathBuf> {
    standard_paths::runtime().map(|directory| directory.join("steps"))
}

/// Returns the steps of each engine that has a count since the boot, of this user.
pub fn read() -> Vec<HeldSteps> {
    directory().map(|directory| read_in(&directory)).unwrap_or_default()
}

/// Returns the steps of root's engines, such as dockerd, for another user; none for root.
pub fn read_of_root() -> Vec<HeldSteps> {
    let directory = standard_paths::runtime_of_root();
    directory.map(|directory| read_in(&directory.join("steps"))).unwrap_or_default()
}

fn read_in(directory: &Path) -> Vec<HeldSteps> {
    let steps = |engine: &'static str| {
        let count = count::read(&directory.join(engine));
        let volatile = count::read(&volatile(directory, engine));
        let as_mounted = count::read(&as_mounted(directory, engine));
        (count > 0 || volatile > 0 || as_mounted > 0).then_some(HeldSteps {
            engine,
            count,
            volatile,
            as_mounted,
            as_mounted_reason: read_record(&reason(directory, engine)),
            last: read_record(&last(directory, engine)),
        })
    };
    ENGINES.into_iter().filter_map(steps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::{self, File};
    use synconce_durable::count::MOST;

    fn step(time: u64, image: Option<String>) -> LastStep {
        LastStep { time, image }
    }

    #[test]
    fn steps_are_counted_beside_each_other_and_the_last_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("steps");
        assert_eq!(read_in(&directory), []);
        let turns = 0..200;
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let (directory, turns) = (&directory, turns.clone());
                threads.spawn(move || {
                    for turn in turns {
                        let image = "x".repeat(turn % 7 * 20);
                        note_in(directory, "docker", &step(thread, Some(image))).unwrap();
                    }
                });
            }
        });
        note_in(&directory, "podman", &step(7, None)).unwrap();
        let [docker, podman] = &read_in(&directory)[..] else { panic!("two engines") };
        assert_eq!((docker.engine, docker.count), ("docker", 4 * turns.len() as u64));
        assert!(docker.last.as_ref().is_some_and(|last| last.time < 4), "{docker:?}");
        assert_eq!(podman.last, Some(step(7, None)));
        note_volatile_in(&directory, "docker", None).unwrap();
        note_volatile_in(&directory, "buildkit", Some(&step(8, None))).unwrap();
        let counts: Vec<_> =
            read_in(&directory).iter().map(|steps| (steps.count, steps.volatile)).collect();
        assert_eq!(counts, [(4 * turns.len() as u64, 1), (0, 1), (1, 0)]);
        assert_eq!(read_in(&directory)[1].last, Some(step(8, None)));
        for why in ["it has a long reason", "it is in use"] {
            note_as_mounted_in(&directory, "docker", why).unwrap();
        }
        let docker = &read_in(&directory)[0];
        assert_eq!(
            (docker.as_mounted, docker.as_mounted_reason.as_deref()),
            (2, Some("it is in use"))
        );
        let length = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
        assert_eq!(length("docker.last"), LENGTH as u64, "it does not grow");
    }

    #[test]
    fn the_count_has_an_end_and_the_longest_name_of_an_image_fits_the_record() {
        let place = tempfile::tempdir().unwrap();
        File::create(place.path().join("docker")).unwrap().set_len(MOST).unwrap();
        let image = shortened(&"\u{1}\"".repeat(TEXT));
        assert!(image.len() <= TEXT);
        note_in(place.path(), "docker", &step(u64::MAX, Some(image.clone()))).unwrap();
        note_as_mounted_in(place.path(), "docker", &"\"".repeat(2 * TEXT)).unwrap();
        let steps = &read_in(place.path())[0];
        assert_eq!(steps.as_mounted_reason, Some("\"".repeat(TEXT)));
        assert_eq!(steps.count, MOST);
        assert_eq!(steps.last.as_ref().unwrap().image, Some(image));
    }

    #[test]
    fn a_note_that_cannot_be_written_or_read_is_missing() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("steps"), "").unwrap();
        assert!(note_in(&place.path().join("steps"), "docker", &step(1, None)).is_err());
        let directory = place.path().join("there");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink("/dev/null", directory.join("docker")).unwrap();
        assert!(note_in(&directory, "docker", &step(1, None)).is_err(), "no link is followed");
        fs::remove_file(directory.join("docker")).unwrap();
        for name in ["docker", "docker.last"] {
            let at = directory.join(name);
            mkfifoat(CWD, &at, Mode::RWXU).unwrap();
            assert!(note_in(&directory, "docker", &step(1, None)).is_err(), "{name}: nobody reads");
            // Neither waits: a pipe without a writer is empty.
            assert_eq!(read_in(&directory).first().and_then(|steps| steps.last.as_ref()), None);
            fs::remove_file(&at).unwrap();
            fs::create_dir(&at).unwrap();
            assert!(note_in(&directory, "docker", &step(1, None)).is_err(), "{name}");
            assert_eq!(read_in(&directory).first().and_then(|steps| steps.last.as_ref()), None);
            fs::remove_dir(&at).unwrap();
        }
        fs::remove_file(directory.join("docker")).unwrap();
        note_in(&directory, "docker", &step(1, None)).unwrap();
        fs::write(last(&directory, "docker"), "damaged").unwrap();
        fs::write(reason(&directory, "docker"), "damaged").unwrap();
        let damaged = &read_in(&directory)[0];
        assert_eq!((damaged.count, &damaged.last, &damaged.as_mounted_reason), (1, &None, &None));
    }
}
