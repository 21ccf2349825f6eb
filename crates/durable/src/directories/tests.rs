use super::*;
use rustix::fs::CWD;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000)
}

fn level(inode: u64, age: Option<u64>) -> Level {
    let changed = age.map(|age| now() - Duration::from_secs(age));
    Level { identity: (8, 1, inode), changed, is_mount_point: Some(false) }
}

fn levels(ages: &[u64]) -> Vec<Level> {
    ages.iter().enumerate().map(|(at, &age)| level(at as u64, Some(age))).collect()
}

const OLD: u64 = HORIZON.as_secs();
const NONE: [usize; 0] = [];

#[test]
fn a_name_is_young_when_both_the_directory_and_its_holder_have_just_changed() {
    assert_eq!(holders(&levels(&[1, 1, 1, 1]), 0, now()), [1, 2, 3]);
    // Every run changes its old directory of markers; packages change /var/lib.
    assert_eq!(holders(&levels(&[1, OLD, 1, OLD]), 0, now()), NONE);
    assert_eq!(holders(&levels(&[OLD, OLD - 1, 0, OLD]), 0, now()), [2]);
}

#[test]
fn a_name_that_this_run_made_is_never_old() {
    assert_eq!(holders(&levels(&[OLD, OLD, OLD, OLD]), 2, now()), [1, 2]);
    assert_eq!(holders(&levels(&[OLD, OLD]), 7, now()), [1], "above is another file system");
}

#[test]
fn a_time_that_is_unknown_or_to_come_does_not_make_a_name_old() {
    let mut unsure = levels(&[1, 1]);
    for changed in [None, Some(now() + Duration::from_secs(9))] {
        unsure[1].changed = changed;
        assert_eq!(holders(&unsure, 0, now()), [1], "{changed:?}");
    }
}

#[test]
fn the_way_up_ends_at_the_device_where_the_kernel_knows_no_mount_points() {
    let unknown = |device| Level { identity: (8, device, 5), changed: None, is_mount_point: None };
    assert!(unknown(1).is_last_before(&unknown(2)));
    assert!(unknown(1).is_last_before(&unknown(1)), "the root is above itself");
    let known = Level { is_mount_point: Some(false), ..unknown(1) };
    assert!(!known.is_last_before(&unknown(2)), "a subvolume of btrfs is no mount");
}

fn open(path: &Path) -> rustix::fd::OwnedFd {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn directories_that_another_run_has_just_made_are_as_new_as_our_own() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("var/lib/synconce/runs");
    let (mut first, mut second) = (Directories::default(), Directories::default());
    first.make(&directory).unwrap();
    second.make(&directory).unwrap();
    assert_eq!((first.made.len(), second.made.len()), (4, 0));

    let levels = climb(open(&directory).as_fd()).unwrap();
    for (up, level) in levels.iter().enumerate() {
        let there = directory.canonicalize().unwrap();
        let there = rustix::fs::stat(there.ancestors().nth(up).unwrap()).unwrap();
        assert_eq!(level.identity.2, there.st_ino, "{up} above");
    }
    assert!(levels.len() > 4 || levels.last().unwrap().is_mount_point == Some(true));
    let now = SystemTime::now();
    assert_eq!(holders(&levels, second.made.len(), now)[..4], [1, 2, 3, 4]);
    let later = now + HORIZON + Duration::from_secs(1);
    assert_eq!(holders(&levels, second.made.len(), later), NONE);
    assert_eq!(holders(&levels, first.made.len(), later), [1, 2, 3, 4]);
}

#[test]
fn a_directory_without_a_sync_of_its_own_is_not_taken_for_synced() {
    assert_eq!(is_synced_alone(open(Path::new("/proc/self")).as_fd(), 1), Ok(false));
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("a")).unwrap();
    assert_eq!(is_synced_alone(open(&place.path().join("a")).as_fd(), 1), Ok(true));
}
