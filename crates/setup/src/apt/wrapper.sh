#!/bin/sh
# Written by `synconce setup apt`; `synconce setup apt --undo` takes it away.
# Starts the real program in a run of synconce if the call changes packages. If no run can be
# started, starts the real program without.
name=@NAME@
real=@REAL@
synconce=@SYNCONCE@

# Whether a call with these arguments changes packages. A call that is missed here is safe: its
# syncs are real.
changes() {
	for word; do
		case $word in
@WORDS@
		esac
	done
	return 1
}

# The machine for which a program was built (e_machine of elf(5)). A shell would interpret a
# program that the kernel cannot execute.
machine() {
	od -An -tx1 -j18 -N2 "$1" 2>/dev/null
}

if [ ! -e "$real" ]; then
	echo "synconce: ${name} is not installed any more; synconce setup apt removes its wrapper" >&2
	exit 127
fi
# No run for a user who cannot change packages, nor in what an earlier wrapper has given up.
if [ -n "$SYNCONCE_UNHELD" ] || ! [ -w /var/lib/dpkg/status ] || ! changes "$@"; then
	exec "$real" "$@"
fi
if [ ! -x "$synconce" ]; then
	reason="$synconce is not there"
elif [ "$(machine "$synconce")" != "$(machine /bin/sh)" ]; then
	reason="$synconce is damaged, or of another architecture"
else
	# Whether a run can be started is tried first: once the real program has started, it must
	# not be started again.
	reason=$(exec 2>&1 </dev/null; "$synconce" run --quiet -- echo held; exit)
	[ "$reason" != held ] || exec "$synconce" run -- "$real" "$@"
	reason=$(echo "$reason" | sed -n '1s/^synconce: //p;1q')
	[ -n "$reason" ] || reason="$synconce fails"
fi
echo "synconce: ${name} runs without a hold: ${reason}" >&2
export SYNCONCE_UNHELD=1
exec "$real" "$@"
