# What a package manager does, in small, in the directory of the first argument: files written
# beside, synced and renamed over others; some never synced at all; files overwritten in place;
# links, modes, times; an O_SYNC descriptor; directories synced.
use strict; use Fcntl; use IO::Handle; use Time::HiRes ();
chdir $ARGV[0] or die "$ARGV[0]: $!";

sub sync_path { open(my $file, '<', $_[0]) or die "$_[0]: $!"; $file->sync or die "$_[0]: $!"; }
sub content { my $i = shift; return join('', map { "$i:$_:" . 'x' x ($i * 7 % 61) . "\n" } 1 .. 3 + $i * 37 % 400); }
sub put { my ($path, $text, $synced) = @_;
    open(my $file, '>', $path) or die "$path: $!"; print $file $text; $file->flush;
    if ($synced) { $file->sync or die "$path: $!"; } close $file or die; }

# A rival under which O_SYNC descriptors cannot be opened sets this variable.
my $synced = $ENV{PROVE_NO_O_SYNC} ? 0 : O_SYNC;
# The first held call comes before the first change.
sync_path('.');
for my $i (1 .. 60) {
    my $dir = 'd' . $i % 5;
    mkdir $dir unless -d $dir;
    put("$dir/f$i.new", content($i), 1); rename "$dir/f$i.new", "$dir/f$i" or die;
    put("$dir/u$i", content($i + 1), 0) if $i % 3 == 0;
    if ($i % 4 == 0) { open(my $old, '+<', 'old' . $i % 20) or die; print $old "changed $i\n"; $old->flush; $old->sync or die; }
    if ($i % 5 == 0) { sysopen(my $log, 'log', O_WRONLY | O_APPEND | O_CREAT | $synced) or die; syswrite $log, "line $i\n"; }
    symlink "f$i", "$dir/s$i" if $i % 6 == 0;
    link "$dir/f$i", "$dir/h$i" if $i % 7 == 0;
    chmod 0640, "$dir/f$i" if $i % 8 == 0;
    utime 1000000000 + $i, 1000000000 + $i, "$dir/f$i" if $i % 9 == 0;
    unlink 'gone' . $i if -e 'gone' . $i;
    sync_path($dir) if $i % 10 == 0;
    Time::HiRes::sleep(0.012);
}
