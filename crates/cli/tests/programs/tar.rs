//! GNU tar, whose newer versions open files by openat2, on a tree of every kind of file.

use crate::comparison::{Comparison, OneSide};
use synconce_testkit::harness::Place;

const SCRIPT: &str = r#"
umask 022
mkdir -p tree/deep/er tree/empty
seq 1 20000 >tree/file; printf 'x' >tree/deep/setuid; chmod 6755 tree/deep/setuid
ln tree/file tree/deep/hard; ln -s ../file tree/deep/link; ln -s /nowhere tree/dangling
mkfifo tree/fifo; mknod tree/null c 1 3
truncate -s 3M tree/sparse; printf end >>tree/sparse
chown 1234:4321 tree/deep/er; chmod 1777 tree/empty
for n in $(seq 1 300); do echo $n >tree/deep/er/$n; done
long=tree/$(printf 'l%.0s' $(seq 1 200)); mkdir $long; echo long >$long/$(printf 'n%.0s' $(seq 1 200))
find tree -exec touch -h -d @1700000000 {} +
tar --create --sparse --xattrs --sort=name --file=archive tree
mkdir out; tar --extract --xattrs --same-owner --same-permissions --file=archive --directory=out
mkdir again; tar --extract --same-owner --same-permissions --keep-old-files --file=archive --directory=again
tar --extract --overwrite --same-owner --same-permissions --file=archive --directory=again
tar --compare --file=archive --directory=out
tar --list --verbose --numeric-owner --file=archive
dd if=archive of=synced bs=64k conv=fsync oflag=sync status=none
cmp archive synced
sync -d synced; sync -f synced; sync
cp --archive out copy
"#;

pub fn an_archive_of_everything_is_extracted_alike(place: &Place) {
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", SCRIPT]).succeeds();
    comparison.same("listings", OneSide::out);
    // The headers of sparse files contain the pid.
    comparison.same_tree("", &["tmp", "archive", "synced"]);
    for call in ["openat", "fsync", "fdatasync", "syncfs", "sync"] {
        comparison.holds(call, 1);
    }
}
