/* Writes, overwrites and deletes in an LMDB environment of every kind, opens the
 * environment again, and prints its content. */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TRY(call) do { int failed = (call); if (failed) { \
	fprintf(stderr, "%s: %s\n", #call, mdb_strerror(failed)); exit(1); } } while (0)

static MDB_env *open_environment(const char *path, unsigned flags)
{
	MDB_env *env;
	TRY(mdb_env_create(&env));
	TRY(mdb_env_set_mapsize(env, 32 << 20));
	TRY(mdb_env_set_maxdbs(env, 4));
	TRY(mdb_env_open(env, path, flags, 0644));
	return env;
}

/* Transaction `n`: a few keys, every third with deletes, every tenth aborted. */
static void transaction(MDB_env *env, int n)
{
	MDB_txn *txn;
	MDB_dbi dbi;
	TRY(mdb_txn_begin(env, NULL, 0, &txn));
	TRY(mdb_dbi_open(txn, "data", MDB_CREATE, &dbi));
	for (int i = 0; i < 20; i++) {
		char key[32], data[600];
		MDB_val k = { sprintf(key, "key-%05d", n * 7 + i), key };
		MDB_val d = { 40 + (n * i) % 500, data };
		for (size_t at = 0; at < d.mv_size; at++)
			data[at] = 'a' + (n + i + at) % 26;
		TRY(mdb_put(txn, dbi, &k, &d, 0));
		if (n % 3 == 0 && i % 5 == 0)
			TRY(mdb_del(txn, dbi, &k, NULL));
	}
	if (n % 10 == 9)
		mdb_txn_abort(txn);
	else
		TRY(mdb_txn_commit(txn));
}

static void print(MDB_env *env, const char *name)
{
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_cursor *cursor;
	MDB_val key, data;
	MDB_stat stat;
	unsigned long count = 0, hash = 5381;
	TRY(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
	TRY(mdb_dbi_open(txn, "data", 0, &dbi));
	TRY(mdb_stat(txn, dbi, &stat));
	TRY(mdb_cursor_open(txn, dbi, &cursor));
	while (mdb_cursor_get(cursor, &key, &data, MDB_NEXT) == 0) {
		count++;
		for (size_t at = 0; at < data.mv_size; at++)
			hash = hash * 33 + ((unsigned char *)data.mv_data)[at];
	}
	printf("%s: %lu entries, hash %lx, depth %u, leaves %zu\n", name, count, hash,
		stat.ms_depth, stat.ms_leaf_pages);
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
}

int main(void)
{
	static const struct { const char *name; unsigned flags; } kinds[] = {
		{ "default", 0 }, { "nometasync", MDB_NOMETASYNC }, { "nosync", MDB_NOSYNC },
		{ "writemap", MDB_WRITEMAP }, { "mapasync", MDB_WRITEMAP | MDB_MAPASYNC },
		{ "nordahead", MDB_NORDAHEAD | MDB_NOTLS },
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const char *name = kinds[i].name;
		char copy[64];
		if (mkdir(name, 0755))
			return 1;
		MDB_env *env = open_environment(name, kinds[i].flags);
		for (int n = 0; n < 120; n++)
			transaction(env, n);
		TRY(mdb_env_sync(env, 1));
		mdb_env_close(env);
		env = open_environment(name, kinds[i].flags);
		print(env, name);
		sprintf(copy, "%s-copy", name);
		if (mkdir(copy, 0755))
			return 1;
		TRY(mdb_env_copy2(env, copy, MDB_CP_COMPACT));
		mdb_env_close(env);
		env = open_environment(copy, 0);
		print(env, copy);
		mdb_env_close(env);
	}
	return 0;
}
