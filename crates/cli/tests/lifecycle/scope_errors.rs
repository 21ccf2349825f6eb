//! A write-back error before the first held call on a disk, of which synconce has no descriptor
//! then. Another process gets the error first. The caller's own file still reports the error.

use crate::scope::rig;
use std::fs::{self, File};
use synconce_testkit::harness::{
    Place, StartedCommand, isolated, isolated_alone, perl, without_foreign_syncs,
};
use synconce_testkit::rig::Rig;

/// Makes the write-back of what was written on `rig` fail, and reports the error to `other`, a
/// descriptor there. The disk works again afterwards.
fn lose_and_tell(rig: &Rig, other: &File) {
    rig.disk().fail_writes(true).unwrap();
    assert!(rustix::fs::syncfs(other).is_err(), "the error is reported");
    rig.disk().fail_writes(false).unwrap();
    // ext4 reports a failed write of its own at the next syncfs(2).
    let _ = rustix::fs::syncfs(other);
    rustix::fs::syncfs(other).expect("no error is left");
}

/// Returns what the command `words` prints, in a run or not. After the command has made the file
/// `written`, the write-back of its file `data` on `rig` fails; then the file `go` is made.
fn output(place: &Place, rig: &Rig, words: &[&str], held: bool) -> String {
    let file = rig.path().join("data");
    fs::write(&file, [b'a'; 65536]).unwrap();
    // Opened before the error. Once its syncfs(2) in [`lose_and_tell`] has reported the error,
    // later descriptors do not report it (errseq).
    let other = File::open(rig.path()).unwrap();
    rustix::fs::syncfs(&other).unwrap();
    let mut bare = place.command(words[0]);
    bare.args(&words[1..]);
    let mut under = place.held(&[], words);
    let going = StartedCommand::new(if held { &mut under } else { &mut bare });
    going.wait_for(place, "written");
    lose_and_tell(rig, &other);
    drop(other);
    place.write("go", "");
    let code = going.end().code();
    ["written", "go"].into_iter().for_each(|name| place.remove(name));
    format!("{} {}", going.text().lines().next().unwrap_or_default(), code.unwrap())
}

#[test]
fn a_thread_with_its_own_descriptor_table_gets_the_error_of_its_own_file() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        for held in [false, true] {
            let _barrier = without_foreign_syncs();
            let rig = rig();
            let program = format!(
                "import ctypes, os, threading, time\n\
                 one = os.open('{0}/one', os.O_RDWR | os.O_CREAT)\n\
                 data = os.open('{0}/data', os.O_RDWR)\n\
                 def work():\n\
                 \x20   CLONE_FILES = 0x400\n\
                 \x20   assert ctypes.CDLL(None).unshare(CLONE_FILES) == 0\n\
                 \x20   os.dup2(data, one)\n\
                 \x20   os.write(one, b'b' * 65536)\n\
                 \x20   with open('written.new', 'w') as file: file.write('1\\n')\n\
                 \x20   os.rename('written.new', 'written')\n\
                 \x20   while not os.path.exists('go'): time.sleep(0.005)\n\
                 \x20   try: os.fsync(one); print('synced')\n\
                 \x20   except OSError: print('failed')\n\
                 thread = threading.Thread(target=work); thread.start(); thread.join()\n",
                rig.path().display()
            );
            let output = output(place, &rig, &["python3", "-c", &program], held);
            assert!(output.starts_with("failed"), "{held}: {output}");
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_disk_that_other_mounts_hide_at_the_commit_fails_the_run() {
    isolated(|place| {
        let rig = rig();
        rig.unmount().unwrap();
        let (outer, point) = (place.text("outer"), place.text("outer/inner"));
        fs::create_dir_all(&point).unwrap();
        fs::create_dir(place.path("other")).unwrap();
        // Mounted during the run, so that the disk has no descriptor before the commit. One mount
        // hides the disk, and the other hides the mount point.
        let script = format!(
            "system('mount', '-o', 'commit=300', '{}', '{point}') == 0 or die; \
             sync_file('{point}/data') eq 'synced' or die; say_to('before', 1); wait_for('go'); \
             sync_file('{point}/data') eq 'synced' or die; \
             system('mount', '--bind', 'other', $_) == 0 or die for '{point}', '{outer}';",
            rig.device().display()
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        run.wait_for(place, "before");
        rig.disk().fail_writes(true).unwrap();
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        let named = format!("synconce: not durable: {point} (ext4 on ");
        assert!(run.text().contains(&named), "{}", run.text());
        assert_eq!(place.markers().len(), 1);
        rig.disk().fail_writes(false).unwrap();
        for hiding in [&outer, &point] {
            assert!(place.bare(&["umount", hiding]).status.success());
        }
        rig.down().unwrap();
    });
}
