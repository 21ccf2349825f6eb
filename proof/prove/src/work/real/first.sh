# Runs in the same shell before every workload; $1 is the tree. The first held call comes
# before the first change. Otherwise a workload that writes before it syncs (apt does) would
# have changed the tree before the marker exists, which the promise allows and the judge does
# not.
set -eu
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd "$1"
sync .
