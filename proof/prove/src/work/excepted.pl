# Syncs for real in the middle of the run: writes a file in the directory of the third argument, which
# is under --except, and syncs the file and the directory. Then it creates `committed` in the directory of the second argument, waits
# for `go` there, and works on in the directory of the first argument.
use strict; use IO::Handle; use Time::HiRes ();
my ($tree, $control, $own) = @ARGV;
chdir $tree or die;
# The first held call comes before the first change.
open(my $dir, '<', '.') or die; $dir->sync or die;
open(my $early, '>', "$own/file") or die; print $early "durable\n" x 900;
$early->flush; $early->sync or die; close $early or die;
open(my $above, '<', $own) or die; $above->sync or die;
open(my $committed, '>', "$control/committed") or die; close $committed;
Time::HiRes::sleep(0.002) until -e "$control/go";
for my $i (1 .. 30) {
    open(my $file, '>', "file$i") or die; print $file "$i\n" x 900; $file->flush; $file->sync or die;
    Time::HiRes::sleep(0.012);
}
