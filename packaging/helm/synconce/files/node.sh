#!/bin/sh
# Sets up the node whose root is /host, waits, and undoes the set-up when the pod ends. Files
# from before the chart are not overwritten, removed or undone: stamps on the node record what
# the chart did.
set -eu
program=/synconce
runtime="$BINARY_DIRECTORY/synconce-oci"
binary="/host$runtime"
state=/host/var/lib/synconce
journal="$state/setup/containerd/journal.json"
# The checksums and paths of the binaries that the chart installed, or was about to install.
put="$state/helm/binaries"
# Exists if the chart made the set-up.
own="$state/helm/set-up"

setup() {
	"$program" setup containerd --root /host --runtime "$runtime" "$@"
}

# Runs in the node's own namespaces. Running pods survive a restart of containerd.
restart() {
	if [ "$RESTART_CONTAINERD" = true ]; then
		nsenter --target 1 --mount --uts --ipc --net -- systemctl restart containerd
	fi
}

stamp_of() {
	sha256sum <"$1" | { read -r sum _; echo "$sum $runtime"; }
}

is_put() {
	[ -f "$binary" ] && [ ! -L "$binary" ] && grep -qsxF "$(stamp_of "$binary")" "$put"
}

install_binary() {
	if [ -e "$binary" ] || [ -L "$binary" ]; then
		# The same binary may stay, whatever installed it.
		if cmp -s "$program" "$binary"; then return; fi
		if ! is_put; then
			echo "$runtime is there, and not by this chart: move it away, or set binaryDirectory" >&2
			exit 1
		fi
	fi
	mkdir -p "/host$BINARY_DIRECTORY" "$state/helm"
	stamp=$(stamp_of "$program")
	if ! grep -qsxF "$stamp" "$put"; then
		echo "$stamp" >>"$put"
		sync "$put"
	fi
	# A container that starts at this moment gets the complete old or new binary.
	new="/host$BINARY_DIRECTORY/.synconce-oci.synconce-new"
	cp "$program" "$new"
	chmod 755 "$new"
	mv -f "$new" "$binary"
}

# A container is removed by the runtime that created it, so the runtime stays while a container
# uses it.
is_in_use() {
	grep -qs "\"$runtime\"" /host/run/containerd/io.containerd.runtime.v2.task/*/*/options.json
}

# Whether containerd still names the runtime, by a set-up that is not the chart's: a new set-up
# would change nothing.
is_named() {
	missing=$(setup --dry-run 2>/dev/null) && [ -z "$missing" ]
}

undo() {
	kill "$sleeper" 2>/dev/null || true
	if [ -e "$own" ]; then
		changes=$(setup --undo --dry-run)
		setup --undo
		rm -f "$own"
		[ -z "$changes" ] || restart
	fi
	if is_put; then
		if is_in_use || is_named; then
			echo "$runtime is in use still: it stays" >&2
		else
			rm -f "$binary" "$put"
		fi
	fi
	rmdir "$state/helm" "$state" 2>/dev/null || true
	exit 0
}

install_binary
sleeper=
trap undo TERM INT
# A set-up that was undone by hand no longer belongs to the chart.
[ -e "$journal" ] || rm -f "$own"
changes=$(setup --dry-run)
if [ -n "$changes" ]; then
	if [ ! -e "$journal" ]; then
		mkdir -p "$state/helm"
		touch "$own"
		sync "$own"
	fi
	setup
	restart
fi
touch /tmp/ready
while :; do
	sleep 3600 &
	sleeper=$!
	wait "$sleeper" || true
done
