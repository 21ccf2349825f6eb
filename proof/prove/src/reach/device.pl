# Writes 4 KiB blocks all over the first 4 MiB of the device of the first argument, and syncs:
# by fsync after every 20 blocks, or by one sync(2) at the end.
use strict; use IO::Handle;
my ($path, $how) = @ARGV;
open(my $device, '+<', $path) or die "$path: $!";
for my $i (0 .. 399) {
    seek($device, 4096 * ($i * 607 % 1024), 0) or die "$path: $!";
    print $device pack('N', $i) x 1024 or die "$path: $!";
    if ($how eq 'fsync' && $i % 20 == 19) { $device->flush; $device->sync or die "$path: $!"; }
}
$device->flush;
if ($how eq 'sync') { system('sync') == 0 or die 'sync'; }
