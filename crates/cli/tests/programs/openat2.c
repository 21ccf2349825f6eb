/* Opens files like a tar that extracts by openat2: below a directory, with every
 * restriction, with and without O_SYNC and O_DSYNC, with and without an error.
 * Prints the result of each open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { const char *name; unsigned long long flags; } restrictions[] = {
	{ "none", 0 }, { "beneath", RESOLVE_BENEATH }, { "in-root", RESOLVE_IN_ROOT },
	{ "no-symlinks", RESOLVE_NO_SYMLINKS }, { "no-magiclinks", RESOLVE_NO_MAGICLINKS },
	{ "no-xdev", RESOLVE_NO_XDEV },
};
static const struct { const char *name; int flags; } syncs[] = {
	{ "plain", 0 }, { "dsync", O_DSYNC }, { "sync", O_SYNC },
};
static const char *paths[] = {
	"file", "sub/file", "inner/file", "outer/file", "../file", "/file", "none/file",
};

static void one(int root, int restriction, int sync, const char *path)
{
	struct open_how how = {
		.flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | syncs[sync].flags,
		.mode = 0666, .resolve = restrictions[restriction].flags,
	};
	char name[128];
	snprintf(name, sizeof name, "%s-%s-%s", path, restrictions[restriction].name, syncs[sync].name);
	int fd = syscall(SYS_openat2, root, name, &how, sizeof how);
	printf("%s %s %s: %s", path, restrictions[restriction].name, syncs[sync].name,
		fd < 0 ? strerror(errno) : "open");
	if (fd >= 0) {
		struct stat stat;
		ssize_t written = write(fd, "data\n", 5);
		fstat(fd, &stat);
		printf(", mode %o, %zd written, flags %x", stat.st_mode, written,
			fcntl(fd, F_GETFL) & ~O_SYNC);
		close(fd);
		/* Leave no files in /. */
		if (path[0] == '/' && restrictions[restriction].flags != RESOLVE_IN_ROOT)
			unlink(name);
	}
	printf("\n");
}

static void ill(const char *what, int root, const void *how, size_t size)
{
	long result = syscall(SYS_openat2, root, "sub", how, size);
	printf("%s: %ld %s\n", what, result, strerror(errno));
}

int main(void)
{
	struct open_how wrong = { .flags = O_RDWR | O_DSYNC, .mode = 0644 };
	umask(027);
	if (mkdir("root", 0755) || mkdir("root/sub", 0755) || mkdir("outside", 0755)
		|| symlink("sub", "root/inner") || symlink("../outside", "root/outer"))
		return 1;
	int root = open("root", O_PATH | O_DIRECTORY);
	for (size_t r = 0; r < sizeof restrictions / sizeof *restrictions; r++)
		for (size_t s = 0; s < sizeof syncs / sizeof *syncs; s++)
			for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
				one(root, r, s, paths[p]);
	ill("mode without create", root, &wrong, sizeof wrong);
	ill("size 8", root, &wrong, 8);
	ill("bad address", root, (void *)1, sizeof wrong);
	return 0;
}
