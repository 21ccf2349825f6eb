#!/bin/sh
# Written by `synconce setup apt`; `synconce setup apt --undo` takes it away.
# Starts the real program in a run of synconce if the call changes packages. If no run can be
# started, starts the real program without a run.
# The names of the variables begin with synconce_: an exported variable of the caller would change.
synconce_name=@NAME@
synconce_real=@REAL@
synconce_program=@SYNCONCE@

# Whether a call with these arguments changes packages. A call that is missed here is safe: its
# syncs are real.
changes() {
	for synconce_word; do
		case $synconce_word in
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

if [ ! -e "$synconce_real" ]; then
	echo "synconce: ${synconce_name} is not installed any more: ${synconce_real} is not there; synconce setup apt says what helps" >&2
	exit 127
fi
# Starts no run if the call changes no packages, if the user cannot change packages, or if an outer
# wrapper could not start a run.
if [ -n "$SYNCONCE_UNHELD" ] || ! [ -w /var/lib/dpkg/status ] || ! changes "$@"; then
	exec "$synconce_real" "$@"
fi
if [ ! -e "$synconce_program" ]; then
	synconce_said="synconce: $synconce_program is not there"
elif [ ! -x "$synconce_program" ]; then
	synconce_said="synconce: $synconce_program is not executable"
elif [ "$(machine "$synconce_program")" != "$(machine /bin/sh)" ]; then
	synconce_said="synconce: $synconce_program is damaged, or of another architecture"
else
	# Whether a run can be started is tried first: once the real program has started, it must
	# not be started again. A run without CAP_SYS_ADMIN sets no_new_privs (proc(5)).
	synconce_rights=$(sed -n 's/^NoNewPrivs:/held/p' /proc/self/status 2>/dev/null)
	synconce_said=$(exec 2>&1 </dev/null; "$synconce_program" run --or-real --argv0=sed --quiet -- \
		sed -n 's/^NoNewPrivs:/held/p' /proc/self/status; exit)
	case "
$synconce_said
" in
	*"
${synconce_rights:-none}
"*)
		# The trial run may have reported an interrupted run, which synconce reports only once.
		[ "$synconce_said" = "$synconce_rights" ] || echo "$synconce_said" | sed '/^held/d' >&2
		exec "$synconce_program" run --or-real --argv0="@ARGV0@" -- "$synconce_real" "$@"
		;;
	*"
held"*)
		synconce_said="synconce: a run sets no_new_privs here, for lack of CAP_SYS_ADMIN: sudo would fail in scripts"
		;;
	esac
fi
# Takes the first line of the message without another program: PATH may have none.
case $synconce_said in
"synconce: "*)
	synconce_said=${synconce_said#synconce: }
	synconce_said=${synconce_said%%
*}
	;;
*) synconce_said="$synconce_program fails" ;;
esac
echo "synconce: ${synconce_name} runs without a hold: ${synconce_said}" >&2
export SYNCONCE_UNHELD=1
exec "$synconce_real" "$@"
