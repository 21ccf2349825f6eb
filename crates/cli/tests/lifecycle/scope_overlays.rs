//! Overlays of the command: what is under them is committed, too.

use super::support::{Started, finish, isolated_alone, number, perl};
use std::fs;
use std::path::Path;
use std::process::Command;
use synconce_testkit::rig::Rig;

fn rig() -> Rig {
    Rig::builder().size(64 << 20).mount_options("commit=300").passthrough(false).up().unwrap()
}

/// Fails the write-back of what a program has written to `file` on `rig`, which only a
/// descriptor of our own reports. The disk works again afterwards.
fn lose_written(rig: &Rig, file: &Path) {
    let all = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let script = format!(
        "open(my $file, '<', $ARGV[0]) or die; \
         exit(syscall({}, fileno($file), 0, 0, {all}) == 0 ? 0 : 1);",
        number::SYNC_FILE_RANGE
    );
    rig.disk().fail_writes(true).unwrap();
    let lost = finish(Command::new("perl").args(["-e", &script]).arg(file));
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    rig.disk().fail_writes(false).unwrap();
}

#[test]
fn an_error_below_an_overlay_of_the_command_is_not_missed() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        for named in ["absolute", "relative"] {
            for held in [false, true] {
                let rig = rig();
                let point = rig.path().display();
                for name in ["lower", "upper", "work"] {
                    fs::create_dir(rig.path().join(name)).unwrap();
                }
                let data = rig.path().join("upper/data");
                fs::write(&data, [b'a'; 65536]).unwrap();
                fs::create_dir_all(place.path("merged")).unwrap();
                let before = if named == "absolute" { format!("{point}/") } else { String::new() };
                let options =
                    format!("lowerdir={before}lower,upperdir={before}upper,workdir={before}work");
                let script = format!(
                    "use IO::Handle; my $here = POSIX::getcwd(); chdir '{point}'; \
                     system('mount', '-t', 'overlay', '-o', '{options}', 'overlay', \
                     \"$here/merged\") == 0 or die; chdir $here; \
                     open(my $file, '+<', 'merged/data') or die; print $file 'b' x 65536; \
                     $file->flush; say_to('written', 1); wait_for('go'); \
                     print $file->sync ? 'synced' : 'failed';"
                );
                let words = perl(&script);
                let words = words.each_ref().map(String::as_str);
                let words = [&["unshare", "--mount"], &words[..]].concat();
                let mut bare = place.command(words[0]);
                bare.args(&words[1..]);
                let mut under = place.held(&[], &words);
                let going = Started::new(if held { &mut under } else { &mut bare });
                place.wait_for("written");
                lose_written(&rig, &data);
                place.write("go", "");
                let code = going.end().code();
                let expected = if held { Some(125) } else { Some(0) };
                assert_eq!(code, expected, "{named} {held} {}", going.text());
                assert!(held || going.text() == "failed", "{named} {}", going.text());
                assert_eq!(place.markers().len(), usize::from(held));
                for marker in place.markers() {
                    let text = fs::read_to_string(&marker).unwrap();
                    let count = text.matches(&format!("\"{point}\"")).count();
                    assert_eq!(count, 1, "{text}");
                    fs::remove_file(marker).unwrap();
                }
                ["written", "go"].into_iter().for_each(|name| place.remove(name));
                rig.down().unwrap();
            }
        }
    });
}
