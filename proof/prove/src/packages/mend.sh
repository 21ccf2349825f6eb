# Types the commands that `synconce status` prints, and ends at the first that fails.
# A boot follows a power cut, in a later second.
cat /proc/sys/kernel/random/uuid >/run/boot
echo "btime $(($(date +%s) + 1))" >/run/stat
mount --bind /run/boot /proc/sys/kernel/random/boot_id
mount --bind /run/stat /proc/stat
synconce status >/run/said && exit 9
sed -n '/to keep the system/,/^  then/p' /run/said | sed -n 's/^      //p' >/run/mend
sed -n 's/^  then: //p' /run/said >>/run/mend
sh -ex /run/mend </dev/null
synconce status
test -z "$(dpkg --audit)"
