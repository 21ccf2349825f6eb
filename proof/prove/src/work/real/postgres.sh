# Creates a cluster, loads it and stops it cleanly. Other users cannot enter the rig's mount
# point, so the script uses a bind mount, which no other process sees.
mount --bind "$1" /mnt
install -d -m 700 -o postgres /mnt/pg
cd /mnt
bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin | sort -V | tail -n 1)
exec runuser -u postgres -- sh -euc '
	PATH=$0:$PATH
	initdb -D /mnt/pg --no-locale -E UTF8
	pg_ctl -s -w -D /mnt/pg -l /mnt/pg/server.log -o "-k /mnt/pg -c listen_addresses=" start
	pgbench -h /mnt/pg -i -q postgres
	pgbench -h /mnt/pg -n -c 2 -t 200 postgres
	pg_ctl -s -w -D /mnt/pg -m fast stop' "$bin"
