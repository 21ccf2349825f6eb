/* Measures transactions of SQLite in WAL mode: COUNT inserts of one row each. The last word of
 * the output is the time of an insert in nanoseconds.
 * usage: sqlite sync|no-sync DIRECTORY COUNT */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sqlite3 *db;

static void check(int code, int expected)
{
	if (code != expected) {
		fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
		exit(1);
	}
}

static void run(const char *line)
{
	check(sqlite3_exec(db, line, NULL, NULL, NULL), SQLITE_OK);
}

/* Returns the first column of the first row, as text. */
static const char *ask(const char *line)
{
	static char text[64];
	sqlite3_stmt *query;
	check(sqlite3_prepare_v2(db, line, -1, &query, NULL), SQLITE_OK);
	check(sqlite3_step(query), SQLITE_ROW);
	snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(query, 0));
	sqlite3_finalize(query);
	return text;
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
	char path[4096];
	snprintf(path, sizeof path, "%s/base", word[2]);
	check(sqlite3_open(path, &db), SQLITE_OK);
	run("PRAGMA journal_mode=WAL");
	run(strcmp(word[1], "no-sync") ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF");
	printf("journal_mode=%s", ask("PRAGMA journal_mode"));
	printf(" synchronous=%s, page size ", ask("PRAGMA synchronous"));
	printf("%s, SQLite %s\n", ask("PRAGMA page_size"), sqlite3_libversion());
	run("CREATE TABLE bench (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID");
	sqlite3_stmt *insert;
	check(sqlite3_prepare_v2(db, "INSERT INTO bench VALUES (?, 'value')", -1, &insert, NULL), SQLITE_OK);
	double start = now();
	for (int n = 0; n < count; n++) {
		char key[32];
		snprintf(key, sizeof key, "key-%08d", n);
		sqlite3_bind_text(insert, 1, key, -1, SQLITE_STATIC);
		check(sqlite3_step(insert), SQLITE_DONE);
		check(sqlite3_reset(insert), SQLITE_OK);
	}
	double elapsed = now() - start;
	sqlite3_finalize(insert);
	if (atoi(ask("SELECT count(*) FROM bench")) != count || strcmp(ask("PRAGMA integrity_check"), "ok")) {
		fprintf(stderr, "sqlite: rows are missing\n");
		return 1;
	}
	check(sqlite3_close(db), SQLITE_OK);
	printf("%f\n", elapsed / count);
	return 0;
}
