//! What docs/trees.md says of overlays: where they are not like one file system.

use crate::concurrent::{point, text};
use crate::roots;
use crate::site::{Site, for_each_strategy};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Need, Place, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let needs = [NEEDS[0], Need::Program("python3", "python3")];
    vec![trial(an_overlay_differs_from_one_file_system_as_documented, &needs)]
}

/// Each act in docs/trees.md, and Python that is true if the act has the documented result. The
/// working directory is a tree of [`make`].
const ACTS: [(&str, &str); 9] = [
    // The kernel documents this act and the next (Documentation/filesystems/overlayfs.rst).
    (
        "map a file of the base for reading, then write to the file for the first time",
        "mapped = mmap.mmap(os.open('mapped', os.O_RDONLY), 3, prot=mmap.PROT_READ)
written = os.open('mapped', os.O_RDWR)
os.pwrite(written, b'new', 0)
differs = mapped[:] == b'old'",
    ),
    (
        "read a file of the base to which nothing was written",
        "os.chmod('read', 0o600)
os.utime('read', (1, 2))
open('read').read()
differs = os.stat('read').st_atime == 1",
    ),
    // Locks by a file that is removed: a process that waited for the lock looks at the count.
    (
        "remove a file of the base that is open",
        "removed = os.open('removed', os.O_RDONLY)
os.unlink('removed')
differs = os.fstat(removed).st_nlink != 0",
    ),
    // Reported of bsdcpio (libarchive issue 723), in sbuild with an overlay.
    (
        "count the links of a directory of the base after a change in it, on ext4 and xfs",
        "open('directory/new', 'w').close()
differs = os.stat('directory').st_nlink == 1",
    ),
    (
        "write to a sparse file of the base for the first time, on ext4",
        "sparse = os.open('sparse', os.O_RDWR)
os.pwrite(sparse, b'new', 0)
differs = os.lseek(sparse, 1 << 20, os.SEEK_HOLE) > (1 << 20) + 65536",
    ),
    // Reported of mkosi (issue 1841).
    (
        "ask for a file handle, for NFS or for fanotify(7) with file IDs",
        "handle = (ctypes.c_uint * 64)(200)
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.name_to_handle_at(-100, b'read', handle, (ctypes.c_int * 1)(), 0) != 0
differs = failed and ctypes.get_errno() == errno.EOPNOTSUPP",
    ),
    // Reported of fuse-overlayfs (issue 326), LXD (17271) and Incus (3783).
    (
        "make a device 0:0, as the unpacking of a container image does",
        "differs = subprocess.run(['mknod', 'device', 'c', '0', '0']).returncode != 0",
    ),
    (
        "make a directory the upper directory of another overlay",
        "for name in ['lower', 'upper', 'work', 'merged']: os.mkdir(name)
options = 'lowerdir=lower,upperdir=upper,workdir=work'
mounted = subprocess.run(['mount', '-t', 'overlay', '-o', options, 'nested', 'merged'])
if mounted.returncode == 0: subprocess.run(['umount', 'merged'], check=True)
differs = mounted.returncode != 0",
    ),
    // Reported of Docker (moby issues 11705 and 31587).
    (
        "ask for the type of the file system",
        "kind = subprocess.run(['stat', '-f', '-c', '%T', '.'], stdout=subprocess.PIPE, check=True)
differs = kind.stdout == b'overlayfs\\n'",
    ),
];

fn make(place: &Place) {
    let source = roots::small(place, "source");
    for name in ["mapped", "read", "removed"] {
        fs::write(source.join(name), "old").unwrap();
    }
    fs::create_dir_all(source.join("directory/below")).unwrap();
    let sparse = format!("{}/sparse", text(&source));
    let script = format!(
        "truncate -s 16M {sparse}; yes | head -c 65536 |
         dd of={sparse} bs=64K seek=16 iflag=fullblock conv=notrunc status=none"
    );
    let made = place.bare(&["bash", "-ec", &script]);
    assert!(made.status.success(), "{made:?}");
}

/// Returns the acts that differ in a mounted tree.
fn differing(site: &Site<'_>) -> Vec<String> {
    let mut script = "import ctypes, errno, mmap, os, subprocess, sys\n".to_owned();
    script += "os.chdir(sys.argv[1])\n";
    for (act, python) in ACTS {
        script += &format!("{python}\nif differs: print({act:?})\n");
    }
    let at = point(site, "mounted");
    site.clone_of("base", "tree");
    site.well(&["mount", "tree", text(&at)]);
    let done = site.place.bare(&["python3", "-c", &script, text(&at)]);
    site.well(&["umount", text(&at)]);
    assert!(done.status.success(), "{done:?}");
    done.stdout.lines().map(str::to_owned).collect()
}

fn an_overlay_differs_from_one_file_system_as_documented(place: &Place) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trees.md");
    let document = fs::read_to_string(document).unwrap();
    let section = document.split_once("### Where an overlay is not like").expect("the section").1;
    let table = section.split_once("| act | in an overlay |").expect("the table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    let documented: Vec<_> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    assert_eq!(documented, ACTS.map(|(act, _)| act));
    make(place);
    for_each_strategy(place, FsKind::Ext4, 512 << 20, |site| {
        site.import("base", &place.path("source"));
        let wanted: &[&str] = if site.strategy() == "overlay" { &documented } else { &[] };
        assert_eq!(differing(site), wanted);
    });
}
