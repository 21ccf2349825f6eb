//! Disk images of QEMU: the flushes of a guest, as qemu-io makes them.

use crate::comparison::{Comparison, OneSide};
use synconce_testkit::harness::{Need, Place};

pub const NEEDS: [Need; 2] =
    [Need::Program("qemu-io", "qemu-utils"), Need::Program("qemu-img", "qemu-utils")];

/// `-n` opens the image past the page cache, as `cache=none` does. `-i native` uses aio, whose
/// flushes are calls of fdatasync(2) in QEMU 7.2.
const SCRIPT: &str = "
qemu-img create -q -f qcow2 base.qcow2 64M
qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 clone.qcow2
qemu-img create -q -f raw plain.img 64M
writes() {
    file=$1 format=$2
    shift 2
    for n in 0 1 2 3 4 5 6 7; do
        set -- \"$@\" -c \"write -P $((n + 1)) ${n}M 64k\" -c flush
    done
    qemu-io \"$@\" -f $format $file | grep -c '^wrote 65536/65536'
}
writes base.qcow2 qcow2
writes clone.qcow2 qcow2 -n
writes plain.img raw -n -i native
writes plain.img raw -t writethrough
qemu-img snapshot -c one base.qcow2 && qemu-img snapshot -d one base.qcow2
qemu-img commit -q clone.qcow2
qemu-img check base.qcow2
";

pub fn images_are_the_same_with_every_cache_mode(place: &Place) {
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", SCRIPT]).succeeds();
    comparison.same("what it says", OneSide::out);
    comparison.same_tree(".", &[]);
    comparison.holds("fdatasync", 32);
}
