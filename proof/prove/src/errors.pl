# Overwrites the second argument in place, and exits with 9 if a call reports an error. The
# first argument selects when the error happens; it happens between the files `written` and
# `go` in the fourth argument. `journal` makes a directory beside instead, after the file `failing`.
use strict; use IO::Handle; use Time::HiRes ();
my ($when, $data, $other, $control) = @ARGV;
my ($mmap, $read, $msync, $length) = (9, 0, 26, 65536);

sub overwrite { open(my $file, '+<', $_[0]) or exit 9; print $file 'b' x $length; $file->flush or exit 9; return $file; }

sub wait_for { Time::HiRes::sleep(0.005) until -e "$control/$_[0]"; }
sub say_that { open(my $said, '>', "$control/$_[0]") or die; close $said; }

if ($when eq 'journal') {
    (my $path = $data) =~ s{/[^/]*$}{};
    sysopen(my $place, $path, 0) or die; $place->sync or die; say_that('written');
    wait_for('failing'); mkdir "$path/made" or die; $place->sync or exit 9; close $place;
    say_that('made'); wait_for('go'); exit 0;
}
my ($file, $address);
if ($when eq 'mapping') {
    open($file, '+<', $data) or die; open(my $zero, '<', '/dev/zero') or die;
    $address = syscall($mmap, 0, $length, 3, 1, fileno($file), 0);
    syscall($read, fileno($zero), $address, $length) == $length or die;
} else { $file = overwrite($data); }
if ($when eq 'synced') { $file->sync or die; close $file; }
say_that('written');
wait_for('go');
exit 0 if $when eq 'synced';
# The first sync on this disk is the sync of another file.
if ($when eq 'older') { overwrite($other)->sync or exit 9; }
exit 9 unless $when eq 'mapping' ? syscall($msync, $address, $length, 4) == 0 : $file->sync;
