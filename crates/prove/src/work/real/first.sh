# Before every work, in its own shell; $1 is the tree. The first call that is held
# comes before the first change: a work that writes before it syncs (apt does) would else have changed the tree before there is a marker, which the
# promise allows and the judge does not.
set -eu
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd "$1"
sync .
