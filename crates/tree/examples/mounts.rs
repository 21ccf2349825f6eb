//! Measures mounts of clones on the file system of a directory: `mounts DIR [FILES]`, as root.
//! Prints medians of a hundred mounts in microseconds, and the time to freeze a clone of FILES
//! files, some of them hard-linked.

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;
use synconce_tree::overlay::{self, DetachedMount, Features};

const ROUNDS: usize = 100;

fn main() {
    let mut words = std::env::args_os().skip(1);
    let place = PathBuf::from(words.next().expect("a directory")).join("mounts-example");
    let files = words.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(0);
    synconce_tree::namespace::enter_private().expect("a mount namespace");
    fs::create_dir(&place).expect("a new directory");
    fill(&place.join("whole"), files);
    fs::create_dir(place.join("root")).expect("a mount point");
    let tried = || assert!(overlay::trial(opened(&place).as_fd()).is_ok());
    print("trial", &mut [(); ROUNDS].map(|()| timed(tried)));
    for (name, volatile) in [("volatile", true), ("durable", false)] {
        let features = Features { volatile, ..Features::PRIVILEGED };
        let (mut mounts, mut unmounts) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let [upper, work] = directories(&place, &format!("{name}{round}"));
            let mut mounted = None;
            mounts.push(timed(|| mounted = Some(clone(&place, &upper, &work, features))));
            fs::write(place.join("root/f"), "written").expect("a file");
            drop(mounted);
            unmounts.push(timed(|| {
                unmount(place.join("root"), UnmountFlags::empty()).expect("an unmount");
            }));
        }
        print(&format!("mount, {name}"), &mut mounts);
        print(&format!("umount, {name}, after one file"), &mut unmounts);
    }
    freeze(&place);
    fs::remove_dir_all(place).expect("all removed");
}

fn freeze(place: &Path) {
    let [upper, work] = directories(place, "frozen");
    let mount = clone(place, &upper, &work, Features::PRIVILEGED);
    let frozen = || overlay::freeze(mount.as_fd(), opened(&upper).as_fd(), opened(&work).as_fd());
    let nothing = timed(|| assert_eq!(frozen().expect("frozen").files, 0));
    print("freeze without hard links", &mut [nothing]);
    fs::write(place.join("root/d0/hard"), "new").expect("a hard link");
    print("freeze with one", &mut [timed(|| println!("{:?}", frozen().expect("frozen")))]);
    drop(mount);
    unmount(place.join("root"), UnmountFlags::empty()).expect("an unmount");
}

/// Makes `files` files in directories of a dozen each; the first of each directory is a link
/// to one file.
fn fill(whole: &Path, files: usize) {
    fs::create_dir(whole).expect("a layer");
    for directory in 0..files.div_ceil(12).max(1) {
        let inner = whole.join(format!("d{directory}"));
        fs::create_dir(&inner).expect("a directory");
        match directory {
            0 => fs::write(inner.join("hard"), "old").expect("a file"),
            _ if directory < 10 => {
                fs::hard_link(whole.join("d0/hard"), inner.join("hard")).expect("a link");
            }
            _ => {}
        }
        for file in 0..11 {
            fs::write(inner.join(format!("f{file}")), "").expect("a file");
        }
    }
}

fn clone(place: &Path, upper: &Path, work: &Path, features: Features) -> DetachedMount {
    let whole = opened(&place.join("whole"));
    let (upper, work) = (opened(upper), opened(work));
    let mount = overlay::writable(&[whole.as_fd()], upper.as_fd(), work.as_fd(), features);
    let mount = mount.expect("a mount");
    mount.attach(opened(&place.join("root")).as_fd()).expect("attached");
    mount
}

fn directories(place: &Path, name: &str) -> [PathBuf; 2] {
    ["upper", "work"].map(|kind| {
        let path = place.join(format!("{name}-{kind}"));
        fs::create_dir(&path).expect("a directory");
        path
    })
}

fn opened(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("opened")
}

fn timed(act: impl FnOnce()) -> u128 {
    let start = Instant::now();
    act();
    start.elapsed().as_micros()
}

fn print(name: &str, times: &mut [u128]) {
    times.sort_unstable();
    println!("{name}: {} us", times[times.len() / 2]);
}
