//! Judges what a power cut left of a daemon's state.

use super::engine::{DatabaseSyncs, RunningDaemon, SeenImages, StepRootKind};
use super::fixture::{IMAGES, name};
use super::hold::output;
use super::recording::Subject;
use super::script::{Images, StepAct};
use super::world::World;
use crate::Result;

/// The image that is imported after each cut, into what the cut left.
const AFTERWARDS: usize = 0;
/// What a recovery says of images that are not among the held files.
const OLDER: &str = "list of images may be up to 30 seconds older than the crash";
/// What a recovery says of images that had damaged layers.
const DAMAGED: &str = "layers of docker that the crash damaged are set aside, too";
/// What precedes the names of these images.
const GONE: &str = "docker no longer has these images: ";
/// What precedes the next message.
const NEXT_LINE: &str = " synconce: ";
/// The kind of a cut after which the daemon does not start.
pub(super) const STARTS: &str = "daemon start";
/// The kind of a cut with records of BuildKit whose layers are missing; no image has them.
pub(super) const STRAYS: &str = "stray records";
/// The kind of a cut after which dockerd panics in BuildKit's `cache.db`.
pub(super) const CACHE: &str = "cache.db";
/// The package of BuildKit that has `cache.db`, as a panic of Go names it. It writes the database
/// without syncs (`NoSync` of bbolt), so a cut can leave pages of two transactions.
const PACKAGE_OF_CACHE: &str = "buildkit/solver/bboltcachestorage.";
/// What a build by dockerd ends with if BuildKit has a record of a layer that dockerd's layer store
/// does not have (`ErrLayerDoesNotExist` of moby). dockerd renames a new layer's record into place,
/// and does not sync the directory before BuildKit writes its own.
const LAYER_GONE: &str = "ERROR: layer does not exist";
/// How many faults of one cut are shown.
const SHOWN: usize = 3;

/// What was found at a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CutVerdict {
    /// Everything that was acknowledged is there and whole.
    Kept,
    /// The state was set aside, the recovery has said so, and the daemon works.
    Wiped,
    /// Something is broken: in which step of the judgement, and what.
    Broken(&'static str, String),
    /// An acknowledged change is gone, and nothing says so.
    Silent(String),
}

/// What has to be there at a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredAtCut<'a> {
    /// The images after the last step that has ended, and after the one that was cut.
    pub images: [&'a Images; 2],
    /// The images after each step that has ended since the hold began.
    pub earlier: &'a [Images],
    /// Whether the daemon and the hold had stopped in order: nothing may be missing, or set
    /// aside.
    pub stopped: bool,
}

/// Starts the daemon on the disk that a cut has left, and looks at all that it lists.
pub(super) fn judge(
    subject: &Subject<'_>,
    world: &World,
    moment: &RequiredAtCut<'_>,
) -> CutVerdict {
    let hold = subject.hold(world);
    let mut said = String::new();
    if let Some(hold) = &hold {
        match hold.verb("recover", world) {
            Ok(finished) if finished.status.success() => said = output(&finished),
            Ok(finished) => return broken("recover", output(&finished)),
            Err(error) => return broken("recover", error.to_string()),
        }
        if let Err(error) = hold.must("start", world) {
            return broken("hold start", error.to_string());
        }
    }
    let daemon = match subject.engine.start(world) {
        Ok(daemon) => daemon,
        Err(error) => return broken(STARTS, error.to_string()),
    };
    let seen = match daemon.examine(subject.fixture) {
        Ok(seen) => seen,
        Err(error) => return ended("daemon", error.to_string()),
    };
    let verdict = compare(&seen, moment, &said, subject.engine.keeps_images());
    if let CutVerdict::Broken(..) = verdict {
        return verdict;
    }
    if let Err(error) = use_again(subject, moment, &*daemon) {
        return ended("use again", error.to_string());
    }
    if let Err(error) = daemon.stop() {
        return broken("daemon stop", error.to_string());
    }
    for verb in ["settle", "stop"] {
        if let Some(Err(error)) = hold.as_ref().map(|hold| hold.must(verb, world)) {
            return broken("hold stop", error.to_string());
        }
    }
    match seen.strays.first() {
        Some(stray) => broken(STRAYS, stray.clone()),
        None => verdict,
    }
}

fn broken(what: &'static str, detail: String) -> CutVerdict {
    CutVerdict::Broken(what, detail)
}

/// Returns the finding of an error of a client: of `what`, of `cache.db` if dockerd ended there, or
/// of a record without its layer.
fn ended(what: &'static str, error: String) -> CutVerdict {
    let kind = if error.contains(PACKAGE_OF_CACHE) {
        CACHE
    } else if error.contains(LAYER_GONE) {
        STRAYS
    } else {
        what
    };
    broken(kind, error)
}

fn compare(
    seen: &SeenImages,
    moment: &RequiredAtCut<'_>,
    said: &str,
    keeps_images: bool,
) -> CutVerdict {
    if !seen.faults.is_empty() {
        let first: Vec<_> = seen.faults.iter().take(SHOWN).cloned().collect();
        let (all, first) = (seen.faults.len(), first.join(" | "));
        return broken("content", format!("{all} faults: {first}; said: {said}"));
    }
    if moment.stopped && !said.is_empty() {
        return broken("false alarm", said.to_owned());
    }
    let is_wiped = said.contains("set aside");
    if is_wiped && !keeps_images {
        return CutVerdict::Wiped;
    }
    let gone = if is_wiped { gone(said) } else { Images::new() };
    if let Some(image) = gone.intersection(&seen.listed).next() {
        return broken("false alarm", format!("image {image} is listed; said: {said}"));
    }
    let is_seen = |images: &Images| images.difference(&gone).eq(&seen.listed);
    if is_wiped && said.contains(OLDER) && moment.earlier.iter().any(is_seen) {
        return CutVerdict::Wiped;
    }
    let [before, after] = moment.images;
    let is_lost = |image: &&usize| !seen.listed.contains(image) && !gone.contains(image);
    let lost = before.intersection(after).find(is_lost);
    let back = seen.listed.iter().find(|image| !before.contains(image) && !after.contains(image));
    match (lost, back) {
        (None, None) if is_wiped => CutVerdict::Wiped,
        (None, None) => CutVerdict::Kept,
        (Some(image), _) => CutVerdict::Silent(format!("image {image} is gone")),
        (None, Some(image)) => CutVerdict::Silent(format!("image {image} is back")),
    }
}

/// Returns the images that a recovery has set aside, because their layers were damaged.
fn gone(said: &str) -> Images {
    let Some((_, names)) = said.split_once(GONE).filter(|_| said.contains(DAMAGED)) else {
        return Images::new();
    };
    // All lines of the output are in one.
    let names = names.split_once(NEXT_LINE).map_or(names, |(names, _)| names);
    (0..IMAGES).filter(|image| names.split(", ").any(|one| one == name(*image))).collect()
}

/// Imports an image and runs a container of it, in whatever the cut has left. Builds every image
/// that a build was recorded of, with the layers that the daemon has kept.
fn use_again(
    subject: &Subject<'_>,
    moment: &RequiredAtCut<'_>,
    daemon: &dyn RunningDaemon,
) -> Result<()> {
    let [_, begun] = moment.images;
    let again = begun.iter().filter(|_| matches!(subject.way, DatabaseSyncs::Steps(_)));
    let again = again.filter(|image| **image != AFTERWARDS).map(|image| StepAct::Add(*image));
    let acts = [StepAct::Add(AFTERWARDS), StepAct::Start(AFTERWARDS), StepAct::End];
    for act in again.chain(acts) {
        daemon.act(act, subject.fixture)?;
    }
    let seen = daemon.examine(subject.fixture)?;
    match seen.faults.first() {
        Some(fault) => Err(fault.clone().into()),
        None if !seen.listed.contains(&AFTERWARDS) => Err("the image is not listed".into()),
        None => Ok(()),
    }
}

/// Whether the row has to find something broken: the daemon leaves out syncs and nothing
/// recovers, or is known not to be consistent after a power cut.
pub(super) fn has_to_fail(way: DatabaseSyncs) -> bool {
    matches!(
        way,
        DatabaseSyncs::Plain | DatabaseSyncs::NoSync | DatabaseSyncs::Steps(StepRootKind::Unsynced)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a case says beside the images that are listed.
    #[derive(Default)]
    struct JudgedCase {
        stopped: bool,
        keeps_images: bool,
    }

    impl JudgedCase {
        fn judge(self, listed: &[usize], said: &str) -> CutVerdict {
            let (before, after) = (Images::from([1]), Images::from([1, 2]));
            let (images, earlier) = ([&before, &after], [Images::from([3]), before.clone()]);
            let moment = RequiredAtCut { images, earlier: &earlier, stopped: self.stopped };
            let seen =
                SeenImages { listed: listed.iter().copied().collect(), ..SeenImages::default() };
            compare(&seen, &moment, said, self.keeps_images)
        }
    }

    /// Judges a cut at work, whose recovery sets all images aside.
    fn judged(listed: &[usize], said: &str) -> CutVerdict {
        JudgedCase::default().judge(listed, said)
    }

    /// Judges a cut at work, whose recovery keeps images.
    fn judged_of_images(listed: &[usize], said: &str) -> CutVerdict {
        JudgedCase { keeps_images: true, ..JudgedCase::default() }.judge(listed, said)
    }

    /// Judges a cut after an orderly stop.
    fn judged_after_stop(listed: &[usize], said: &str) -> CutVerdict {
        JudgedCase { stopped: true, ..JudgedCase::default() }.judge(listed, said)
    }

    #[test]
    fn a_panic_in_the_build_cache_and_a_record_without_its_layer_are_kinds_of_their_own() {
        let of_build = "build: exit status: 1: unexpected EOF";
        let panic = "panic: invalid page type: 10: 10 | goroutine 198 [running]: | ";
        let package = "github.com/docker/docker/vendor/github.com/moby/buildkit/solver/";
        let kind = |error: String| match ended("use again", error) {
            CutVerdict::Broken(kind, _) => kind,
            other => panic!("{other:?}"),
        };
        let in_cache = format!("{of_build}; {panic}{package}bboltcachestorage.(*Store).AddResult");
        assert_eq!(kind(in_cache), CACHE);
        assert_eq!(kind(format!("{of_build}; {panic}{package}llbsolver.(*Bridge)")), "use again");
        assert_eq!(kind(of_build.to_owned()), "use again");
        let exporting = "#12 exporting layers 0.0s done #12 ERROR: layer does not exist ------";
        assert_eq!(kind(format!("build: exit status: 1: {exporting}")), STRAYS);
    }

    #[test]
    fn what_is_missing_has_to_be_said() {
        assert_eq!(judged(&[1], ""), CutVerdict::Kept);
        assert_eq!(judged(&[1, 2], ""), CutVerdict::Kept);
        assert_eq!(judged(&[], "set aside"), CutVerdict::Wiped);
        assert!(matches!(judged(&[2], ""), CutVerdict::Silent(_)));
        assert!(matches!(judged(&[1, 3], ""), CutVerdict::Silent(_)));
    }

    #[test]
    fn an_older_list_of_images_has_to_be_said_and_to_be_one_that_was() {
        let said = format!("the files are set aside; docker's {OLDER}");
        assert_eq!(judged_of_images(&[3], &said), CutVerdict::Wiped);
        assert!(matches!(judged_of_images(&[3], "set aside"), CutVerdict::Silent(_)));
        assert!(matches!(judged_of_images(&[5], &said), CutVerdict::Silent(_)));
    }

    #[test]
    fn an_image_that_is_gone_has_to_be_named_and_to_have_damaged_layers() {
        let named = |image| {
            let names = format!("base:1, {}", name(image));
            let says = [DAMAGED, &format!("{GONE}{names}"), &format!("docker's {OLDER}")];
            format!("the files are set aside{NEXT_LINE}2 {}", says.join(NEXT_LINE))
        };
        for (listed, said) in [(&[][..], named(1)), (&[2], named(1)), (&[], named(3))] {
            assert_eq!(judged_of_images(listed, &said), CutVerdict::Wiped, "{said}");
        }
        let undamaged = named(1).replace(DAMAGED, "");
        let unnamed = named(1).replace(GONE, "");
        for said in [named(0), named(2), undamaged, unnamed] {
            let verdict = judged_of_images(&[], &said);
            assert!(matches!(verdict, CutVerdict::Silent(_)), "{said}: {verdict:?}");
        }
        let listed = judged_of_images(&[1], &named(1));
        assert!(matches!(listed, CutVerdict::Broken("false alarm", _)));
    }

    #[test]
    fn after_an_orderly_stop_nothing_is_set_aside() {
        assert_eq!(judged_after_stop(&[1], ""), CutVerdict::Kept);
        assert!(matches!(
            judged_after_stop(&[], "set aside"),
            CutVerdict::Broken("false alarm", _)
        ));
    }

    #[test]
    fn what_is_listed_has_to_be_whole() {
        let images = Images::new();
        let moment = RequiredAtCut { images: [&images, &images], earlier: &[], stopped: false };
        let seen = SeenImages { faults: vec!["a blob".to_owned()], ..SeenImages::default() };
        for keeps_images in [false, true] {
            let verdict = compare(&seen, &moment, "", keeps_images);
            assert!(matches!(verdict, CutVerdict::Broken("content", _)));
        }
    }
}
