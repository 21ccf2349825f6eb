# Functions and variables for the scripts of the sandboxes.
NOBODY="setpriv --reuid=65534 --regid=65534 --clear-groups --"
DOCKER=+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap
export DOCKER=$DOCKER,+net_bind_service,+sys_chroot,+kill,+audit_write
BWRAP="--ro-bind / / --dev /dev --proc /proc --bind $PLACE $PLACE --die-with-parent"
# What a dynamic program and the writer read.
SEEN=/usr:/bin:/lib:/lib64:/etc:/dev:$BINARY

# Makes the mount at $1 read-only.
read_only() { mount -o remount,bind,ro "$1" 2>/dev/null || { mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"; }; }
# Makes everything but the directory of the test read-only.
strict() {
    mount --bind "$PLACE" "$PLACE"
    read_only /
    cd "$PLACE"
}
# Leaves in /dev what PrivateDevices leaves there.
devices() {
    mount -t tmpfs -o mode=755 dev /dev
    mknod -m 666 /dev/null c 1 3
    mknod -m 666 /dev/zero c 1 5
    mknod -m 666 /dev/urandom c 1 9
    mknod -m 666 /dev/random c 1 8
}
# Limits the tasks of a new control group to $1, and enters the group.
tasks() {
    group=/sys/fs/cgroup/pids
    [ -d "$group" ] || group=/sys/fs/cgroup
    mkdir -p "$group/$GROUP"
    echo "$1" >"$group/$GROUP/pids.max"
    echo $$ >"$group/$GROUP/cgroup.procs"
}
# Makes the directory $1 a root with all that the machine has, but no mount point.
plain() {
    mkdir -p "$PLACE/$1"
    (
        cd /
        for name in *; do
            if [ -L "$name" ]; then
                cp -P "$name" "$PLACE/$1/"
            elif [ -d "$name" ]; then
                mkdir -p "$PLACE/$1/$name"
                mount --rbind "$name" "$PLACE/$1/$name"
            fi
        done
    )
}
# Makes the directory $1 a volatile overlay above the root. Its upper directory cannot be reached
# from there.
volatile() {
    rm -rf "$PLACE/layer"
    mkdir -p "$PLACE/layer/upper" "$PLACE/layer/work" "$PLACE/$1"
    mount -t overlay -o "volatile,lowerdir=/,upperdir=$PLACE/layer/upper,workdir=$PLACE/layer/work" o "$PLACE/$1"
    for name in proc sys dev; do mount --rbind "/$name" "$PLACE/$1/$name"; done
    mount -t tmpfs none "$PLACE/$1$PLACE"
    for name in work state runtime registry; do
        mkdir "$PLACE/$1$PLACE/$name"
        mount --bind "$PLACE/$name" "$PLACE/$1$PLACE/$name"
    done
}
# filter allow|deny ERRNO|kill CALL... -- COMMAND: executes COMMAND under a filter for the calls, or
# sets of systemd.
filter() {
    exec perl -e '
        use strict; use Errno;
        my ($mode, $action) = (shift, shift); my %number = split " ", $ENV{NUMBERS}; my @calls;
        $action = $action eq "kill" ? 0x80000000 : 0x50000 | Errno->can($action)->();
        sub expand { my ($name) = @_; return $name if $name !~ /^\@/;
            return map { /^\s+([\w\@-]+)/ ? expand($1) : () } `systemd-analyze syscall-filter $name 2>/dev/null` }
        while ((my $word = shift) ne "--") { push @calls, expand($word) }
        my ($listed, $other) = $mode eq "allow" ? (0x7fff0000, $action) : ($action, 0x7fff0000);
        my @numbers = grep { defined } map { $number{$_} } @calls;
        my @code = (pack("SCCL", 0x20, 0, 0, 0), map { pack("SCCLSCCL", 0x15, 0, 1, $_, 6, 0, 0, $listed) } @numbers);
        my $code = join("", @code, pack("SCCL", 6, 0, 0, $other));
        syscall($number{seccomp}, 1, 0, pack("Sx6P", length($code) / 8, $code)) == 0 or die "seccomp: $!";
        exec @ARGV or die $!' "$@"
}
# Starts the command in a container of runc with the capabilities of Docker's default, and a seccomp
# profile that allows the system calls of services and those of debuggers.
container() {
    mkdir -p "$PLACE/bundle/root" "$PLACE/containers"
    mount --rbind / "$PLACE/bundle/root"
    (cd "$PLACE/bundle" && rm -f config.json && runc spec)
    perl -MJSON::PP -e '
        my $calls = join "\n", map { `systemd-analyze syscall-filter $_ 2>/dev/null` } qw(@system-service @aio
            @basic-io @chown @default @file-system @io-event @ipc @keyring @memlock @network-io @process @resources
            @setuid @signal @sync @timer);
        my @names = ($calls =~ /^\s+([a-z]\w*)/mg, qw(ptrace seccomp pidfd_open));
        my ($file, @words) = @ARGV; local $/; open(my $in, "<", $file) or die; my $spec = decode_json(<$in>);
        my @capabilities = map { "CAP_" . uc } split /,\+/, substr $ENV{DOCKER}, 1;
        my %sets = map { $_ => \@capabilities } qw(bounding effective permitted);
        $spec->{process} = { %{$spec->{process}}, terminal => JSON::PP::false, args => \@words, cwd => $ENV{PLACE},
            capabilities => \%sets, env => [map { "$_=$ENV{$_}" } grep { /^(PATH|SYNCONCE_.*)$/ } keys %ENV] };
        $spec->{root} = { path => "root", readonly => JSON::PP::false };
        $spec->{linux}{cgroupsPath} = "/$ENV{GROUP}";
        $spec->{linux}{seccomp} = { defaultAction => "SCMP_ACT_ERRNO",
            syscalls => [{ names => \@names, action => "SCMP_ACT_ALLOW" }] };
        open(my $out, ">", $file) or die; print $out encode_json($spec)' "$PLACE/bundle/config.json" "$@"
    exec runc --root "$PLACE/containers" run --bundle "$PLACE/bundle" "$GROUP"
}
# landlock READ WRITE -- COMMAND: executes COMMAND in a Landlock domain (landlock(7)) that may read
# below the paths READ and write below WRITE, each a list with colons. Debian for arm64 has no /lib64.
landlock() {
    exec perl -e '
        use strict; my ($read, $write) = (shift, shift); shift; my %number = split " ", $ENV{NUMBERS};
        my $all = 0x1fff; my $attributes = pack("Q", $all);
        my $rules = syscall($number{landlock_create_ruleset}, $attributes, 8, 0); $rules >= 0 or die "landlock: $!";
        for my $rule ([0xd, split /:/, $read], [$all, split(/:/, $write), "/dev/null"]) {
            my ($access, @paths) = @$rule;
            for my $path (@paths) {
                next unless -e $path;
                sysopen(my $file, $path, 0x200000) or die "$path: $!";
                my $allowed = -d $path ? $access : $access & 0x7;
                my $beneath = pack("Ql", $allowed, fileno $file);
                syscall($number{landlock_add_rule}, $rules, 1, $beneath, 0) == 0 or die "landlock: $path: $!";
            }
        }
        syscall($number{prctl}, 38, 1, 0, 0, 0) == 0 or die $!;
        syscall($number{landlock_restrict_self}, $rules, 0) == 0 or die "landlock: $!";
        exec @ARGV or die $!' "$@"
}
