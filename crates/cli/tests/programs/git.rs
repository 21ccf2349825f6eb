//! git with every object and reference synced, by each of its methods.

use crate::comparison::{Comparison, OneSide};
use synconce_testkit::harness::Need;
use synconce_testkit::harness::Place;

pub const NEEDS: [Need; 1] = [Need::Program("git", "git")];

const SCRIPT: &str = r#"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$PWD/config
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@invalid GIT_AUTHOR_DATE='@1700000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@invalid GIT_COMMITTER_DATE='@1700000000 +0000'
for method in fsync batch writeout-only; do
    rm -f config
    git config --global core.fsync all
    git config --global core.fsyncMethod $method
    git config --global gc.auto 0
    git config --global init.defaultBranch main
    git init -q $method
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
        mkdir -p $method/dir-$n
        for file in 1 2 3 4 5; do seq $n $((n * file + 300)) >$method/dir-$n/$file; done
        git -C $method add .
        git -C $method commit -q -m "commit $n"
        git -C $method tag -a -m "tag $n" tag-$n
    done
    git -C $method checkout -q -b branch HEAD~4
    git -C $method rm -q -r dir-1
    git -C $method commit -q -m removed
    git -C $method merge -q --no-ff -m merged main
    git clone -q --no-local $method $method-clone
    git -C $method-clone gc -q --aggressive --prune=now
    git -C $method repack -q -a -d -b
    git -C $method pack-refs --all
    for repository in $method $method-clone; do
        echo $method $repository
        git -C $repository fsck --full --strict --no-progress
        git -C $repository rev-list --objects --all
        git -C $repository show-ref
        git -C $repository count-objects -v | grep -v -e size
        git -C $repository status --porcelain
    done
done
"#;

/// Takes long: in the bare run, git syncs its objects to the disk for real.
pub fn repositories_are_the_same_with_every_way_to_fsync(place: &Place) {
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", SCRIPT]).succeeds();
    comparison.same("objects and references", OneSide::out);
    for method in ["fsync", "batch", "writeout-only"] {
        for repository in [method.to_owned(), format!("{method}-clone")] {
            // The index has times and inode numbers, the configuration of the clone has its
            // origin, and the contents of a pack depend on threads.
            let ignored = [".git/index", ".git/config", ".git/objects", ".git/logs"];
            comparison.same_tree(&repository, &ignored);
        }
    }
    comparison.holds("fsync", 200);
    // All methods but the first start write-back of each file.
    comparison.holds("sync_file_range", 100);
}
