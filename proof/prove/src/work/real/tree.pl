# Writes a tar (ustar, POSIX.1-1988) of as many directories as the argument states, each with
# 15 small files, always the same.
use strict;
binmode STDOUT;

sub header { my ($name, $type, $mode, $size) = @_;
    my $head = pack('a100 a8 a8 a8 a12 a12 a8 a1 a100 a6 a2 a32 a32 a8 a8 a155 a12', $name, sprintf('%07o', $mode),
        '0000000', '0000000', sprintf('%011o', $size), sprintf('%011o', 1600000000), ' ' x 8, $type, '', "ustar\0", '00', 'root', 'root', '', '', '', '');
    substr($head, 148, 8) = sprintf("%06o\0 ", unpack('%32C*', $head));
    print $head; }

my $line = join('', map { chr(32 + $_ * 29 % 95) } 1 .. 63) . "\n";
for my $dir (0 .. $ARGV[0] - 1) {
    my $path = 'linux/' . $dir % 20 . '/' . int($dir / 20);
    header("linux/$dir/", 5, 0755, 0) if $dir < 20;
    header("$path/", 5, 0755, 0);
    for my $file (0 .. 14) {
        my $text = ("$dir/$file\n" . $line x 15) x (($dir * 15 + $file) * 7919 % 9);
        header("$path/f$file.c", 0, 0644, length $text);
        print $text, "\0" x (-length($text) % 512);
    }
}
print "\0" x 1024;
