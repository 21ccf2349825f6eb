/* The program of a build's step: syncs repeatedly, makes a tree with every kind of file, or changes
   the owner of files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static long good(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "step: %s: %s\n", what, strerror(errno));
		exit(1);
	}
	return result;
}

/* Appends to the file and syncs it, so that every sync has something to write. */
static void grow(int file)
{
	good(write(file, "x", 1), "write");
	good(fsync(file), "fsync");
}

static int opened(const char *path)
{
	return good(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), path);
}

static void syncs(const char *path, long count)
{
	int file = opened(path);
	for (long done = 0; done < count; done++)
		grow(file);
	printf("synced %ld\n", count);
}

/* Syncs until the file `end` exists; prints `begun` after the first sync. */
static void syncs_until(const char *path, const char *end)
{
	int file = opened(path);
	long count = 0;
	do {
		grow(file);
		if (++count == 1) {
			puts("begun");
			fflush(stdout);
		}
	} while (access(end, F_OK) != 0);
	printf("synced %ld\n", count);
}

static void sync_of(const char *path)
{
	int file = good(open(path, O_RDONLY | O_CLOEXEC), path);
	good(fsync(file), path);
	close(file);
}

static void file(const char *path, mode_t mode, long size)
{
	int file = opened(path);
	for (long at = 0; at < size; at++) {
		char byte = (char)(at * at >> 7);
		good(write(file, &byte, 1), path);
	}
	good(fchmod(file, mode), path);
	close(file);
	sync_of(path);
}

static void directory(const char *path, mode_t mode)
{
	good(mkdir(path, 0755), path);
	good(chmod(path, mode), path);
}

/* Sets a fixed time with a fraction of a second, because archives contain times. */
static void dated(const char *path)
{
	struct timespec times[] = {{1000000000, 500000000}, {1000000000, 500000000}};
	good(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), path);
}

/* Makes the tree; `changed` exists before. */
static void tree(void)
{
	static const unsigned char rights[20] = {1, 0, 0, 2, 0, 4};
	directory("/new", 0755);
	directory("/new/sticky", 01777);
	directory("/new/group", 02750);
	file("/new/empty", 0600, 0);
	file("/new/large", 0644, 40000);
	file("/new/program", 0755, 100);
	file("/new/group/other", 0640, 10);
	good(chown("/new/group/other", 12, 34), "chown");
	good(chmod("/new/program", 04755), "chmod");
	good(link("/new/large", "/new/same"), "link");
	good(symlink("nowhere", "/new/link"), "symlink");
	good(mkfifo("/new/pipe", 0622), "mkfifo");
	good(setxattr("/new/group/other", "security.capability", rights, 20, 0), "setxattr");
	good(setxattr("/new/large", "user.note", "kept", 4, 0), "setxattr");
	file("/changed", 0604, 7);
	sync();
	const char *all[] = {"/new/sticky", "/new/group/other", "/new/group", "/new/empty",
			     "/new/large", "/new/program", "/new/link", "/new/pipe",
			     "/new", "/changed"};
	for (size_t at = 0; at < sizeof all / sizeof *all; at++)
		dated(all[at]);
	puts("made");
}

static void removal(void)
{
	good(unlink("/gone"), "unlink");
	sync_of("/");
	puts("removed");
}

static int to_another(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	return good(lchown(path, 1, 1), path);
}

static void terminated(int number)
{
	_exit(9);
}

/* Waits for SIGTERM. */
static void waits(void)
{
	signal(SIGTERM, terminated);
	puts("begun");
	fflush(stdout);
	for (;;)
		pause();
}

int main(int count, char **words)
{
	if (count == 4 && strcmp(words[1], "syncs") == 0)
		syncs(words[2], atol(words[3]));
	else if (count == 4 && strcmp(words[1], "until") == 0)
		syncs_until(words[2], words[3]);
	else if (count == 2 && strcmp(words[1], "tree") == 0)
		tree();
	else if (count == 2 && strcmp(words[1], "remove") == 0)
		removal();
	else if (count == 3 && strcmp(words[1], "chown") == 0)
		return good(nftw(words[2], to_another, 16, FTW_PHYS), words[2]);
	else if (count == 2 && strcmp(words[1], "wait") == 0)
		waits();
	else
		return 2;
	return 0;
}
