# Types the command that `synconce status` prints, and then what the command prints at its end.
# A boot follows a power cut, in a later second.
cat /proc/sys/kernel/random/uuid >/run/boot
echo "btime $(($(date +%s) + 1))" >/run/stat
mount --bind /run/boot /proc/sys/kernel/random/boot_id
mount --bind /run/stat /proc/stat
synconce status >/run/said && exit 9
sed -n 's/^      \(synconce status --mend \)/\1/p' /run/said >/run/mend
sh -ex /run/mend </dev/null >/run/ended
tail -n 2 /run/ended | sed 's/^then: //' >/run/rest
sh -ex /run/rest </dev/null
synconce status
test -z "$(dpkg --audit)"
