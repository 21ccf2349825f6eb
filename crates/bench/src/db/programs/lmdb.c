/* Measures transactions of LMDB: COUNT puts of one key each. The last word of the output is the
 * time of a put in nanoseconds.
 * usage: lmdb sync|no-sync DIRECTORY COUNT */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(int code)
{
	if (code) {
		fprintf(stderr, "lmdb: %s\n", mdb_strerror(code));
		exit(1);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int words, char **word)
{
	if (words != 4)
		return 2;
	int count = atoi(word[3]);
	unsigned flags = strcmp(word[1], "no-sync") ? 0 : MDB_NOSYNC;
	MDB_env *env;
	MDB_txn *transaction;
	MDB_dbi base;
	MDB_stat stat;
	check(mdb_env_create(&env));
	check(mdb_env_set_mapsize(env, (size_t)1 << 30));
	check(mdb_env_open(env, word[2], flags, 0644));
	check(mdb_txn_begin(env, NULL, 0, &transaction));
	check(mdb_dbi_open(transaction, NULL, 0, &base));
	check(mdb_stat(transaction, base, &stat));
	check(mdb_txn_commit(transaction));
	printf("%s, page size %u, %s\n", flags ? "MDB_NOSYNC" : "no flags", stat.ms_psize, mdb_version(NULL, NULL, NULL));
	double start = now();
	for (int n = 0; n < count; n++) {
		char text[32];
		MDB_val key = { (size_t)snprintf(text, sizeof text, "key-%08d", n), text };
		MDB_val value = { 5, "value" };
		check(mdb_txn_begin(env, NULL, 0, &transaction));
		check(mdb_put(transaction, base, &key, &value, 0));
		check(mdb_txn_commit(transaction));
	}
	double elapsed = now() - start;
	check(mdb_env_stat(env, &stat));
	if (stat.ms_entries != (size_t)count) {
		fprintf(stderr, "lmdb: keys are missing\n");
		return 1;
	}
	mdb_env_close(env);
	printf("%f\n", elapsed / count);
	return 0;
}
