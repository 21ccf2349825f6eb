# Leaves a daemon behind, like the postinst script of a package. Once the file `go` exists in
# the directory of the second argument, the daemon writes and syncs in the directory of the
# third, and creates `done`.
use strict; use IO::Handle; use POSIX (); use Time::HiRes ();
my ($tree, $control, $own) = @ARGV;
chdir $tree or die;
open(my $dir, '<', '.') or die; $dir->sync or die;
for my $i (1 .. 12) { open(my $file, '>', "file$i") or die; print $file "$i\n" x 900; $file->flush; $file->sync or die; }
pipe(my $ready, my $started) or die;
if (!fork) {
    POSIX::setsid(); close $ready; close $started; open(STDIN, '<', '/dev/null'); open(STDOUT, '>', '/dev/null'); open(STDERR, '>', '/dev/null');
    close $dir; chdir '/';
    Time::HiRes::sleep(0.005) until -e "$control/go";
    open(my $file, '>', "$own/file") or die; print $file "durable\n" x 900; $file->flush; my $one = $file->sync;
    open(my $dir, '<', $own) or die; my $two = $dir->sync;
    open(my $done, '>', "$control/done.new") or die; print $done($one && $two ? "synced\n" : "failed\n"); close $done;
    rename "$control/done.new", "$control/done";
    POSIX::_exit(0);
}
# Wait until the daemon is in its own session: a signal to this process group must not end the
# daemon.
close $started; my $line = <$ready>;
