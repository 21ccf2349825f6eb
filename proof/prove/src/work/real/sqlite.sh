# Loads two databases, one with a rollback journal and one with a write-ahead log.
for mode in delete wal; do
	perl -e 'my $mode = shift;
		print "PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL;\n";
		print "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER);\nCREATE INDEX i ON t (b);\n";
		for my $round (1 .. 150) {
			print "BEGIN;\n";
			print "INSERT INTO t (a, b) VALUES (\x27", "x" x ($_ * 37 % 200), "\x27, ", $_ * $round % 97, ");\n" for 1 .. 40;
			print "UPDATE t SET a = a || \x27y\x27 WHERE b = ", $round % 97, ";\nDELETE FROM t WHERE b = ", $round * 5 % 97, ";\n";
			print "COMMIT;\n";
		}
		print "VACUUM;\n";' "$mode" | sqlite3 -bail "$mode.db" >"$mode.said"
done
