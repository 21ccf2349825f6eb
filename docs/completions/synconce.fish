# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_synconce_global_optspecs
    string join \n h/help V/version
end

function __fish_synconce_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_synconce_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_synconce_using_subcommand
    set -l cmd (__fish_synconce_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c synconce -n "__fish_synconce_needs_command" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_needs_command" -s V -l version -d 'Print version'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "run" -d 'Run a command with its disk syncs held, and commit once when it ends'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "commit" -d 'Make durable now what a run in flight has written until now'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "real" -d 'Inside a run: run a command whose disk syncs are real'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "tree" -d 'Clone roots in milliseconds, run commands in the clones, and commit the results'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "status" -d 'Show runs in flight, runs that were interrupted, and survivors'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "setup" -d 'Configure a container engine to hold the syncs of its builds, or undo that'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "bench" -d 'Measure synconce and its rivals, interleaved'
complete -c synconce -n "__fish_synconce_needs_command" -f -a "oci" -d 'Wrap an OCI runtime (runc, crun), and hold the syncs of build containers'
complete -c synconce -n "__fish_synconce_using_subcommand run" -l commit-only -d 'Commit only the file system of PATH (may be given several times)' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand run" -l commit-every -d 'Also commit every DURATION (90s, 5m, 1h) if a sync was held since the last time' -r
complete -c synconce -n "__fish_synconce_using_subcommand run" -l commit-timeout -d 'Give up on a device that completes no request for SECONDS during the commit' -r
complete -c synconce -n "__fish_synconce_using_subcommand run" -l root -d 'Keep a second marker in DIR, the root of the system that the command changes' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand run" -l io-uring -d 'How to answer a program that sets up io_uring, whose syncs no filter sees' -r -f -a "refuse\t'ENOSYS: programs fall back to calls that can be held'
pass\t'Let it through: its syncs are not held'"
complete -c synconce -n "__fish_synconce_using_subcommand run" -l sealed -d 'Answer sync calls in the kernel, without a supervisor process'
complete -c synconce -n "__fish_synconce_using_subcommand run" -l no-commit -d 'Do not commit: the result is thrown away, or synced by another program'
complete -c synconce -n "__fish_synconce_using_subcommand run" -l commit-all -d 'Commit every mounted file system, whether or not a sync on it was held'
complete -c synconce -n "__fish_synconce_using_subcommand run" -l stats -d 'Print on standard error the calls that were held and passed, and the commit\'s time'
complete -c synconce -n "__fish_synconce_using_subcommand run" -l json -d 'With --stats: print one JSON object instead of a table'
complete -c synconce -n "__fish_synconce_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c synconce -n "__fish_synconce_using_subcommand commit" -l json -d 'Print the result for each file system as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand commit" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand real" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "init" -d 'Make a store'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "import" -d 'Make a tree from a directory or a tar archive'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "clone" -d 'Make a clone of a tree'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "run" -d 'Run a command in a clone, with its syncs held'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "mount" -d 'Mount a clone, to work in it'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "umount" -d 'Unmount a clone, and keep or discard the changes'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "commit" -d 'Make the changes in a clone durable'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "diff" -d 'Show the paths that were added, changed and removed from A to B'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "export" -d 'Write a tree as a tar archive to standard output, or to a directory'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "squash" -d 'Merge the layers of a tree into one'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "remove" -d 'Remove trees (space is freed in the background; --wait waits for it)'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "list" -d 'List the trees'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "verify" -d 'Check that nothing has changed the layers of a tree'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "gc" -d 'Remove interrupted sessions and unneeded layers, and empty the trash'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "fsck" -d 'Check the store for damage'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and not __fish_seen_subcommand_from init import clone run mount umount commit diff export squash remove list verify gc fsck enter" -f -a "enter" -d 'Start a command in a clone'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from init" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from import" -l strategy -d 'Make clones of the tree by STRATEGY, instead of the best one for the store' -r -f -a "snapshot\t'A snapshot of a btrfs subvolume'
overlay\t'An overlay over the frozen layers'
reflink\t'A copy that shares its extents'
copy\t'A copy'
hardlinks\t'Hard links: what is written in place reaches the base'"
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from import" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from import" -l cross-mounts -d 'Also import what is mounted below a directory'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from import" -l tolerate-changes -d 'Import a directory although its files change meanwhile'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from clone" -l strategy -d 'Make the copy for changes by STRATEGY' -r -f -a "snapshot\t'A snapshot of a btrfs subvolume'
overlay\t'An overlay over the frozen layers'
reflink\t'A copy that shares its extents'
copy\t'A copy'
hardlinks\t'Hard links: what is written in place reaches the base'"
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from clone" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from clone" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l from -d 'Run in a clone of BASE that has no name' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l commit -d 'Commit the result as the tree NEW; BASE\'s own name makes its next generation' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l strategy -d 'Make the copy for changes by STRATEGY' -r -f -a "snapshot\t'A snapshot of a btrfs subvolume'
overlay\t'An overlay over the frozen layers'
reflink\t'A copy that shares its extents'
copy\t'A copy'
hardlinks\t'Hard links: what is written in place reaches the base'"
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l user -d 'Run as USER of the clone, or UID[:GID]' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l bind -d 'Mount the path A of the host at B; A:B:ro read-only (may be given several times)' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l directory -d 'Change to DIR of the clone first' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l discard -d 'Throw the result away'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l root -d 'Run as root of the clone (the default)'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -l no-hold -d 'Hold no syncs'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from mount" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from mount" -l read-only -d 'Mount read-only; nothing is kept'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from mount" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from umount" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from umount" -l discard -d 'Throw the changes away'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from umount" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from commit" -l as -d 'Commit to the new tree NEW, and leave the clone at its last commit' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from commit" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from commit" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from diff" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from diff" -s 0 -l null -d 'End each line with a NUL, because names may contain newlines'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from diff" -l json -d 'Print JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from export" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from squash" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from squash" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from remove" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from remove" -l wait -d 'Wait until the space is free again'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from list" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from list" -l json -d 'Print JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from verify" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from gc" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from gc" -l wait -d 'Wait until the trash is empty, also if another process empties it'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from gc" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from fsck" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from fsck" -l json -d 'Print JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from fsck" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from enter" -l user -d 'A user of the clone, or UID[:GID]' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from enter" -l bind -d 'A path of the host, its path in the clone, and rw or ro' -r
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from enter" -l directory -d 'The command\'s working directory' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from enter" -l store -d 'The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and ~/.local/share/synconce/trees for others]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand tree; and __fish_seen_subcommand_from enter" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand status" -l root -d 'Also look for markers in the system whose root is DIR' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand status" -l clear -d 'Remove the markers of the interrupted run ID, after you threw away or repaired its result' -r
complete -c synconce -n "__fish_synconce_using_subcommand status" -l json -d 'Print JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand status" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand setup" -l root -d 'Configure the system whose root is DIR, such as an image' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand setup" -l runtime -d 'The path of synconce-oci in that system [default: beside synconce, or /usr/local/bin/synconce-oci]' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand setup" -l dry-run -d 'Print the changes as a diff on standard output, and write nothing'
complete -c synconce -n "__fish_synconce_using_subcommand setup" -l undo -d 'Restore every file as it was before'
complete -c synconce -n "__fish_synconce_using_subcommand setup" -l force -d 'With --undo: also where a file was edited since, and its edits are lost, or where containers would not start any more'
complete -c synconce -n "__fish_synconce_using_subcommand setup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "install" -d 'apt-get install into a fresh Debian root, by every way to skip syncs'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "build" -d 'docker build with an apt-get install, by every way to skip its syncs'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "compile" -d 'Build a copy of a source tree: what the tool costs where nothing syncs'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "tree" -d 'Clone a root of 100,000 files, write in it and remove it, by every way to do so'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "cost" -d 'What the tool itself costs: start-up, of a container too, a held call, any other call'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and not __fish_seen_subcommand_from install build compile tree cost loop" -f -a "loop" -d 'Make one kind of call in a loop and print the nanoseconds a call took'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l dir -d 'Work in DIR, on the disk to be measured' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l rounds -d 'Rounds over all variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l packages -d 'Packages to install' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l suite -d 'Debian release of the root' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l mirror -d 'A mirror to install from, instead of this machine\'s own apt sources' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l cache -d 'Where the prepared root is kept between benchmarks' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l variants -d 'Measure only these variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l keep -d 'Leave the installed roots of the last round'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -l json -d 'Print every sample as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l dir -d 'Work in DIR, on the disk to be measured' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l rounds -d 'Rounds over all variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l packages -d 'Packages to install' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l suite -d 'Debian release of the root' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l mirror -d 'A mirror to install from, instead of this machine\'s own apt sources' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l cache -d 'Where the prepared root is kept between benchmarks' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l variants -d 'Measure only these variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -l json -d 'Print every sample as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from build" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l source -d 'The source tree; it is copied and never written' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l jobs -d 'What {jobs} in the commands stands for' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l rounds -d 'Rounds over all variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l dir -d 'Work in DIR, on the disk to be measured' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l prepare -d 'Make the tree ready by CMD, once and untimed, such as \'./configure\'' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l command -d 'Build by CMD, a line for sh' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l variants -d 'Measure only these variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -l json -d 'Print every sample as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from compile" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l dir -d 'Work in DIR, on the disk to be measured' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l rounds -d 'Rounds over all variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l source -d 'Clone a copy of the root DIR, which needs /bin/sh, tar and coreutils, instead of a prepared one' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l packages -d 'Packages in the prepared root [default: about 100,000 entries]' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l suite -d 'Debian release of the prepared root' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l mirror -d 'A mirror to install from, instead of this machine\'s own apt sources' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l cache -d 'Where the prepared root is kept between benchmarks' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l variants -d 'Measure only these variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l cold -d 'Empty the caches of the whole machine before what is timed'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -l json -d 'Print every sample as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from cost" -l dir -d 'Work in DIR, on a disk' -r -F
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from cost" -l rounds -d 'Rounds over all variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from cost" -l variants -d 'Measure only these variants' -r
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from cost" -l json -d 'Print every sample as JSON on standard output'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from cost" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand bench; and __fish_seen_subcommand_from loop" -s h -l help -d 'Print help'
complete -c synconce -n "__fish_synconce_using_subcommand oci" -s h -l help -d 'Print help'
