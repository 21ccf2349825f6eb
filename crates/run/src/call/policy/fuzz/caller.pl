# A caller with memory at known addresses and descriptors of every kind. It waits for the end
# of standard input.
use strict;
use Fcntl;
use POSIX ();
use Socket;
my ($mmap, $area, $length, $shared, $page) = @ARGV;
my ($both, $private, $mine) = (3, 0x32, 0x11);
POSIX::close($_) for 3 .. 255; # inherited descriptors
open(my $data, "+<", "data") or die "data: $!";                           # 3
open(my $only, "<", "data") or die "data: $!";                            # 4
sysopen(my $directory, ".", O_RDONLY) or die "here: $!";                  # 5
sysopen(my $name, "data", 010000000) or die "O_PATH: $!";                 # 6
pipe(my $reader, my $writer) or die "pipe: $!";                           # 7 8
open(my $null, "+<", "/dev/null") or die "null: $!";                      # 9
socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";          # 10
open(my $proc, "<", "/proc/self/status") or die "status: $!";             # 11
open(my $gone, "+<", "gone") or die "gone: $!";                           # 12
unlink("gone");
sub map_at { syscall($mmap, @_) == $_[0] or die "mmap: $!" }
map_at($area + 0, $length + 0, $both, $private, -1, 0);
map_at($shared + 0, 4 * $page, $both, $mine, fileno($data), 0);
map_at($shared + 4 * $page, 2 * $page, $both, $private, -1, 0);
syswrite(STDOUT, "ready\n");
1 while sysread(STDIN, my $ignored, 1);
