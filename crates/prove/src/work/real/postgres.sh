# A cluster, a load, a clean stop. The rig's mount point is closed to other users,
# hence the bind mount, which nobody else sees.
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
