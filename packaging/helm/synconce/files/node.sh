#!/bin/sh
# Sets the node up whose root is /host, waits, and undoes that when the pod ends.
set -eu
runtime="$BINARY_DIRECTORY/synconce-oci"
binary="/host$runtime"

setup() {
	/synconce setup containerd --root /host --runtime "$runtime" "$@"
}

# In the node's own namespaces. Running pods do not end with their containerd.
restart() {
	if [ "$RESTART_CONTAINERD" = true ]; then
		nsenter --target 1 --mount --uts --ipc --net -- systemctl restart containerd
	fi
}

# A container is removed by the runtime that made it: it stays as long as there is one.
is_in_use() {
	grep -qs "\"$runtime\"" /host/run/containerd/io.containerd.runtime.v2.task/*/*/options.json
}

undo() {
	kill "$sleeper" 2>/dev/null || true
	changes=$(setup --undo --dry-run)
	setup --undo
	[ -z "$changes" ] || restart
	if is_in_use; then
		echo "containers that $runtime made are still there: it stays" >&2
	else
		rm -f "$binary"
	fi
	exit 0
}

mkdir -p "/host$BINARY_DIRECTORY"
# A container that starts at this moment gets the old one or the new one, whole.
cp /synconce "$binary.new"
chmod 755 "$binary.new"
mv -f "$binary.new" "$binary"

sleeper=
trap undo TERM INT
changes=$(setup --dry-run)
if [ -n "$changes" ]; then
	setup
	restart
fi
touch /tmp/ready
while :; do
	sleep 3600 &
	sleeper=$!
	wait "$sleeper" || true
done
