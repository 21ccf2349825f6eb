//! Small perl programs that are run under a hold. Every Debian has perl.

/// Instructions of BPF (linux/filter.h).
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Returns perl subroutines. `hold()` asks whether the process is held, by the handshake that
/// the kernel answers with EBADF. `sync_file(PATH)` writes a file and syncs it. `say_to(PATH,
/// TEXT)` writes a line atomically. The perl of a minimal root lacks Time::HiRes.
fn prelude() -> String {
    format!(
        r#"use strict; use POSIX (); use IO::Handle; eval {{ require Time::HiRes }};
sub hold {{
    my $value = syscall({}, -1, 0, 0, 0x53594e43);
    return $value == 0x51 ? "held" : $! == POSIX::EBADF() ? "free" : $! == 76 ? "sealed" : "odd $value $!";
}}
sub sync_file {{
    open(my $file, ">>", $_[0]) or die "$_[0]: $!"; print $file "data\n"; $file->flush;
    return $file->sync ? "synced" : "failed: $!";
}}
sub say_to {{
    open(my $file, ">", "$_[0].new") or die "$_[0]: $!"; print $file "$_[1]\n"; close $file;
    rename "$_[0].new", $_[0] or die;
}}
sub wait_for {{ select(undef, undef, undef, 0.005) until -e $_[0]; }}
"#,
        libc::SYS_sync_file_range
    )
}

/// Returns a command that runs `script` in perl, after the subroutines `hold`, `sync_file`,
/// `say_to` and `wait_for`.
pub fn perl(script: &str) -> [String; 3] {
    ["perl".to_owned(), "-e".to_owned(), format!("{}{script}", prelude())]
}

/// Prints whether the process is held.
pub const HOLD: &str = "print hold(), \"\\n\";";

/// Syncs a file in the working directory.
pub const SYNC: &str = "print sync_file('data'), \"\\n\";";

/// For a daemon: writes whether it is held and can sync, once the file `go` exists.
pub const AFTER_RELEASE: &str =
    "wait_for('go'); say_to('after', hold() . ' ' . sync_file('data'));";

/// Returns a perl script that starts a daemon which runs `script`: forked twice, in a session
/// of its own, its standard descriptors on /dev/null. The script goes on once the daemon is
/// the only process of its session: the leader would be a second survivor while it exits.
pub fn daemon(script: &str) -> String {
    format!(
        r#"{{ pipe(my $ready, my $tell) or die;
if (!(my $child = fork)) {{
    exit if fork; POSIX::setsid(); my $leader = $$; exit if fork;
    select(undef, undef, undef, 0.001) while getppid == $leader;
    open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
    close $ready; close $tell; {script}; POSIX::_exit(0);
}} close $tell; my $line = <$ready>; wait; }}
"#
    )
}

/// Returns a program that installs a seccomp filter of these instructions (code, jump if true,
/// jump if false, operand) with `flags`, keeps the descriptor that the kernel returns, and
/// executes its arguments.
fn filtered(flags: u32, instructions: &[(u16, u8, u8, u32)]) -> [String; 3] {
    let packed: Vec<_> = instructions
        .iter()
        .map(|(code, yes, no, operand)| format!("pack('SCCL', {code}, {yes}, {no}, {operand})"))
        .collect();
    let script = format!(
        "use Fcntl; my $filter = join('', {}); my $program = pack('Sx6P', {}, $filter); \
         my $fd = syscall({}, 1, {flags}, $program); $fd >= 0 or die \"seccomp: $!\"; \
         if ($fd > 0) {{ open(my $listener, '<&=', $fd) or die; fcntl($listener, F_SETFD, 0) or die; \
         $^F = 1000; exec @ARGV }} exec @ARGV;",
        packed.join(", "),
        instructions.len(),
        libc::SYS_seccomp
    );
    perl(&script)
}

/// Returns a program that installs a filter with a listener that lets every call through.
pub fn under_a_listener() -> [String; 3] {
    filtered(
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32,
        &[(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW)],
    )
}

/// Returns a program that installs a filter which answers seccomp(2) with `errno`.
pub fn without_seccomp(errno: i32) -> [String; 3] {
    without_call(libc::SYS_seccomp, errno)
}

/// Returns a program that installs a filter which answers the system call `number` with `errno`.
pub fn without_call(number: libc::c_long, errno: i32) -> [String; 3] {
    filtered(
        0,
        &[
            (LOAD, 0, 0, 0),
            (EQUAL, 0, 1, number as u32),
            (RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()),
            (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ],
    )
}
