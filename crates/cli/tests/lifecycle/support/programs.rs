//! Small programs that are run under a hold. They are in perl, which every
//! Debian has, and in C where perl cannot.

use super::Place;
use super::place::finish;
use std::path::PathBuf;
use std::process::Command;

/// Numbers of system calls, as `syscall` in perl wants them.
#[cfg(target_arch = "x86_64")]
mod number {
    pub const SYNC_FILE_RANGE: u32 = 277;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const SYNC_FILE_RANGE: u32 = 84;
}

/// Perl subroutines: `hold()` asks whether we are held, by the handshake that
/// the kernel answers with EBADF; `sync_file(PATH)` writes a file and syncs it;
/// `say_to(PATH, TEXT)` writes a line so that it is seen whole.
fn prelude() -> String {
    format!(
        r#"use strict; use POSIX (); use IO::Handle; use Time::HiRes ();
sub hold {{
    my $value = syscall({}, -1, 0, 0, 0x53594e43);
    return $value == 0x51 ? "held" : $! == 9 ? "free" : $! == 76 ? "sealed" : "odd $value $!";
}}
sub sync_file {{
    open(my $file, ">>", $_[0]) or die "$_[0]: $!"; print $file "data\n"; $file->flush;
    return $file->sync ? "synced" : "failed: $!";
}}
sub say_to {{
    open(my $file, ">", "$_[0].new") or die "$_[0]: $!"; print $file "$_[1]\n"; close $file;
    rename "$_[0].new", $_[0] or die;
}}
sub wait_for {{ Time::HiRes::sleep(0.005) until -e $_[0]; }}
"#,
        number::SYNC_FILE_RANGE
    )
}

/// The words of a command that runs `script` in perl, after the subroutines
/// `hold`, `sync_file`, `say_to` and `wait_for`.
pub fn perl(script: &str) -> [String; 3] {
    ["perl".to_owned(), "-e".to_owned(), format!("{}{script}", prelude())]
}

/// Prints whether it is held.
pub const HOLD: &str = "print hold(), \"\\n\";";

/// Syncs a file in the working directory.
pub const SYNC: &str = "print sync_file('data'), \"\\n\";";

/// Of a daemon: says whether it is held and can sync once the file `go` is there.
pub const AFTER_RELEASE: &str =
    "wait_for('go'); say_to('after', hold() . ' ' . sync_file('data'));";

/// A perl script that leaves a daemon behind which runs `script`: forked twice,
/// in a session of its own, its standard descriptors on /dev/null. The script
/// goes on once the daemon is in its session.
pub fn daemon(script: &str) -> String {
    format!(
        r#"{{ pipe(my $ready, my $tell) or die;
if (!(my $child = fork)) {{
    exit if fork; POSIX::setsid(); exit if fork;
    open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
    close $ready; close $tell; {script}; POSIX::_exit(0);
}} close $tell; my $line = <$ready>; wait; }}
"#
    )
}

/// Compiles the C program `source` in `place`.
pub fn c_program(place: &Place, name: &str, source: &str) -> PathBuf {
    let (file, program) = (place.write(&format!("{name}.c"), source), place.path(name));
    let compiled = finish(Command::new("cc").arg("-o").arg(&program).arg(&file));
    assert!(compiled.status.success(), "{}", compiled.stderr);
    program
}
