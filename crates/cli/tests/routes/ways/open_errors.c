/* Opens with O_SYNC that fail. An open that the kernel refuses after its flag was
 * removed is not counted; an open whose file does not exist passes. */
#include "ways.h"
#include <sys/resource.h>

#define NEW (O_RDWR | O_CREAT | O_SYNC)

static void not_there(void)
{
	CALL(open("a", O_RDWR | O_SYNC));
	CALL(open("d/a", NEW, 0644));
	CALL(open("", O_RDWR | O_SYNC));
	NEED(symlink("nowhere", "l") == 0);
	CALL(open("l", O_RDWR | O_SYNC));
	CALL(open("l", NEW | O_EXCL, 0644));
}

static void there_already(void)
{
	make_file("a", "content");
	CALL(open("a", NEW | O_EXCL, 0644));
}

static void a_directory(void)
{
	NEED(mkdir("d", 0755) == 0);
	CALL(open("d", O_RDWR | O_SYNC));
	CALL(open("d", NEW, 0644));
	CALL(open("d/", NEW, 0644));
}

static void no_directory(void)
{
	make_file("a", "content");
	CALL(open("a/b", O_RDWR | O_SYNC));
	CALL(open("a", O_RDONLY | O_DIRECTORY | O_SYNC));
	CALL(open("a/", O_RDONLY | O_SYNC));
}

static void no_rights(void)
{
	NEED(mkdir("d", 0700) == 0);
	make_file("d/a", "content");
	make_file("a", "content");
	NEED(chmod("a", 0400) == 0);
	if (geteuid() != 0) {
		say("not as root");
		return;
	}
	NEED(seteuid(65534) == 0);
	CALL(open("d/a", O_RDONLY | O_SYNC));
	CALL(open("a", O_RDWR | O_SYNC));
	CALL(open("new", NEW, 0644));
	CALL(open("a", O_RDONLY | O_NOATIME | O_SYNC));
}

static void links(void)
{
	NEED(symlink("l", "l") == 0 && symlink("a", "m") == 0);
	make_file("a", "content");
	CALL(open("l", O_RDWR | O_SYNC));
	CALL(open("m", O_RDWR | O_NOFOLLOW | O_SYNC));
}

static void long_names(void)
{
	static char name[300], path[5000];
	memset(name, 'n', sizeof name - 1);
	for (size_t at = 0; at < sizeof path - 1; at++)
		path[at] = at % 2 ? '/' : '.';
	CALL(open(name, NEW, 0644));
	CALL(open(path, NEW, 0644));
}

static void bad_pointers(void)
{
	CALL(syscall(SYS_openat, AT_FDCWD, NULL, NEW, 0644));
	CALL(syscall(SYS_openat, AT_FDCWD, -1L, NEW, 0644));
	CALL(syscall(SYS_openat, AT_FDCWD, 1L, NEW, 0644));
}

static void bad_directories(void)
{
	int fd = file("a"), closed = dup(fd);
	close(closed);
	CALL(openat(closed, "b", NEW, 0644));
	CALL(openat(-5, "b", NEW, 0644));
	CALL(openat(fd, "b", NEW, 0644));
}

static void no_descriptors(void)
{
	struct rlimit old, none;
	int fd = file("a");
	NEED(getrlimit(RLIMIT_NOFILE, &old) == 0);
	none = old;
	none.rlim_cur = fd + 1;
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
	CALL(open("a", O_RDWR | O_SYNC));
	CALL(open("new", NEW, 0644));
	NEED(setrlimit(RLIMIT_NOFILE, &old) == 0);
	say("new file %s", access("new", F_OK) == 0 ? "made" : "not made");
	CALL(open("a", O_RDWR | O_SYNC));
}

static void running_program(void)
{
	char path[4096] = "";
	NEED(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
	errno = UNTOUCHED;
	int fd = open(path, O_WRONLY | O_SYNC);
	outcome("open the running program", fd);
}

static void odd_flags(void)
{
	CALL(open(".", O_RDONLY | O_TMPFILE | O_SYNC, 0600));
	CALL(open("a", NEW | O_DIRECTORY, 0644));
}

const struct way open_error_ways[] = {
	{ "open-absent", not_there, LIBC_OPEN " 0 1 0" },
	{ "open-present", there_already, "" },
	{ "open-directory", a_directory, "" },
	{ "open-no-dir", no_directory, LIBC_OPEN " 0 1 0" },
	{ "open-no-rights", no_rights, "" },
	{ "open-links", links, LIBC_OPEN " 0 1 0" },
	{ "open-long", long_names, LIBC_OPEN " 0 2 0" },
	{ "open-pointers", bad_pointers, "openat 0 3 0" },
	{ "open-bad-dir", bad_directories, "openat 0 3 0" },
	{ "open-no-fds", no_descriptors, LIBC_OPEN " 1 0 0" },
	{ "open-running", running_program, "" },
	{ "open-odd", odd_flags, "" },
	{ 0 },
};
