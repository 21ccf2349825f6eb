# Creates a repository with some history, to be cloned.
cd "$1"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q -b main source
cd source
git config user.name prover
git config user.email prover@example.invalid
for round in 1 2 3 4 5 6 7 8; do
	perl -e 'my $round = shift;
		for my $i (0 .. 399) {
			next if $round > 1 && ($i * 7 + $round) % 9;
			my $dir = "d" . $i % 20; mkdir $dir;
			open(my $file, ">", "$dir/f$i") or die "$dir/f$i: $!";
			print $file map { "$round:$i:" . $_ * $i % 101 . "\n" } 1 .. 40 + $i % 300;
		}' "$round"
	git add -A
	git commit -q -m "round $round"
done
