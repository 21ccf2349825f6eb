/* Opens with O_SYNC and O_DSYNC that succeed. */
#include "ways.h"
#include <dirent.h>
#include <sys/sysmacros.h>

#define NEW (O_RDWR | O_CREAT)

/* Volatile, so that FORTIFY cannot check the flags at compile time. */
static volatile int fortified = O_RDWR | O_SYNC, fortified_new = NEW | O_SYNC;

static void opened(int fd)
{
	disk_flags(fd);
	write_to(fd);
}

static void by_libc(void)
{
	opened(CALL(open("a", NEW | O_SYNC, 0666)));
	opened(CALL(open("b", NEW | O_DSYNC, 0600)));
}

static void by_libc_at(void)
{
	opened(CALL(openat(AT_FDCWD, "a", NEW | O_SYNC, 0666)));
	opened(CALL(openat(AT_FDCWD, "b", NEW | O_DSYNC, 0600)));
}

static void by_fortify(void)
{
	make_file("a", "content");
	opened(CALL(open("a", fortified)));
	opened(CALL(openat(AT_FDCWD, "a", fortified)));
	opened(CALL(open("b", fortified_new, 0640)));
}

#ifdef SYS_open
static void by_raw_open(void)
{
	opened(CALL(syscall(SYS_open, "a", NEW | O_SYNC, 0666)));
	opened(CALL(syscall(SYS_open, "b", NEW | O_DSYNC, 0600)));
}
#endif

static void by_raw_openat(void)
{
	opened(CALL(syscall(SYS_openat, AT_FDCWD, "a", NEW | O_SYNC, 0666)));
}

static void by_creat(void)
{
	int fd = CALL(creat("a", 0640));
	disk_flags(fd);
	int set = CALL(fcntl(fd, F_SETFL, O_SYNC | O_APPEND));
	say("set %d", set);
	kept_flags(fd);
}

static void by_mkostemp(void)
{
	char name[] = "tXXXXXX";
	int fd = mkostemp(name, O_SYNC);
	NEED(fd >= 0);
	opened(fd);
}

static void by_handle(void)
{
	struct {
		unsigned bytes;
		int type;
		unsigned char data[128];
	} handle = { .bytes = 128 };
	int mount, directory = open(".", O_RDONLY);
	make_file("a", "content");
	NEED(syscall(SYS_name_to_handle_at, AT_FDCWD, "a", &handle, &mount, 0) == 0);
	opened(CALL(syscall(SYS_open_by_handle_at, directory, &handle, O_RDWR | O_SYNC)));
	opened(CALL(syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDWR | O_DSYNC)));
	handle.data[0] ^= 0xff;
	CALL(syscall(SYS_open_by_handle_at, directory, &handle, O_RDWR | O_SYNC));
}

static void unnamed(void)
{
	opened(CALL(open(".", O_RDWR | O_TMPFILE | O_SYNC, 0600)));
}

static void relative(void)
{
	char here[4096], path[4200];
	NEED(mkdir("d", 0755) == 0 && getcwd(here, sizeof here));
	int directory = open("d", O_RDONLY | O_DIRECTORY), place = open("d", O_PATH);
	opened(CALL(openat(directory, "a", NEW | O_SYNC, 0644)));
	opened(CALL(openat(place, "b", NEW | O_SYNC, 0644)));
	opened(CALL(openat(directory, "../c", NEW | O_SYNC, 0644)));
	snprintf(path, sizeof path, "%s/d/e", here);
	int fd = openat(-1, path, NEW | O_SYNC, 0644);
	say("absolute beside a bad directory: %d", fd);
	opened(fd);
	NEED(rename("d", "moved") == 0);
	opened(CALL(openat(directory, "f", NEW | O_SYNC, 0644)));
	NEED(access("moved/a", F_OK) == 0 && access("moved/f", F_OK) == 0 && access("c", F_OK) == 0);
}

static void with_umask(void)
{
	umask(077);
	opened(CALL(open("a", NEW | O_SYNC, 0777)));
	umask(0);
	opened(CALL(open("b", NEW | O_SYNC, 06777)));
}

static void as_other_user(void)
{
	NEED(chmod(".", 0777) == 0);
	if (geteuid() == 0)
		NEED(setegid(65534) == 0 && seteuid(65534) == 0);
	opened(CALL(open("a", NEW | O_SYNC, 0640)));
}

static void with_other_flags(void)
{
	make_file("a", "a long content");
	opened(CALL(open("a", O_RDWR | O_TRUNC | O_SYNC)));
	opened(CALL(open("a", O_RDWR | O_APPEND | O_SYNC | O_CLOEXEC)));
	opened(CALL(open("a", O_RDWR | O_NONBLOCK | O_NOATIME | O_DSYNC)));
	int only = CALL(open("a", O_RDONLY | O_SYNC));
	disk_flags(only);
	look_at(only);
	CALL(write(only, "x", 1));
	int directory = CALL(open(".", O_RDONLY | O_DIRECTORY | O_SYNC));
	disk_flags(directory);
	CALL(fsync(directory));
}

static void by_link(void)
{
	NEED(mkdir("d", 0755) == 0 && symlink("d/a", "l") == 0 && symlink("d", "m") == 0);
	make_file("d/a", "content");
	opened(CALL(open("l", O_RDWR | O_SYNC)));
	opened(CALL(open("m/a", O_RDWR | O_SYNC)));
	NEED(symlink("d/new", "n") == 0);
	int fd = CALL(open("n", NEW | O_SYNC, 0644));
	disk_flags(fd);
	NEED(access("d/new", F_OK) == 0);
}

/* A link on the disk leads to memory, where no call is held. */
static void by_link_away(void)
{
	char name[] = MEMORY "/ways-XXXXXX";
	int fd = mkstemp(name);
	NEED(fd >= 0 && symlink(name, "l") == 0);
	int opened = CALL(open("l", O_RDWR | O_SYNC));
	kept_flags(opened);
	NEED(unlink(name) == 0);
	opened = CALL(open("l", NEW | O_SYNC, 0600));
	kept_flags(opened);
	NEED(unlink(name) == 0);
}

/* The kernel ignores O_SYNC beside O_PATH, so the call is not held. */
static void only_path(void)
{
	make_file("a", "content");
	int fd = CALL(open("a", O_PATH | O_SYNC));
	kept_flags(fd);
}

static void no_disk(void)
{
	NEED(mkfifo("f", 0600) == 0);
	kept_flags(CALL(open("/dev/null", O_RDWR | O_SYNC)));
	kept_flags(CALL(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_SYNC)));
	kept_flags(CALL(open("f", O_RDWR | O_SYNC)));
	kept_flags(CALL(open("/proc/self/status", O_RDONLY | O_SYNC)));
	kept_flags(CALL(open(MEMORY, O_RDWR | O_TMPFILE | O_SYNC, 0600)));
	kept_flags(CALL(open(MEMORY, O_RDONLY | O_SYNC)));
}

/* Makes the node `b` of a block device that can be opened; returns 0 if there is none.
 * Loop devices are left out, because other tests attach and detach them: an open may
 * fail meanwhile, and delays the detaching. */
static int block_node(void)
{
	DIR *devices = opendir("/sys/block");
	NEED(devices != NULL);
	for (struct dirent *device; (device = readdir(devices)) != NULL;) {
		char path[300], numbers[32];
		unsigned major, minor;
		snprintf(path, sizeof path, "/sys/block/%s/dev", device->d_name);
		int fd = strncmp(device->d_name, "loop", 4) == 0 ? -1 : open(path, O_RDONLY);
		ssize_t length = fd < 0 ? -1 : read(fd, numbers, sizeof numbers - 1);
		close(fd);
		numbers[length > 0 ? length : 0] = 0;
		if (sscanf(numbers, "%u:%u", &major, &minor) != 2)
			continue;
		NEED(mknod("b", S_IFBLK | 0600, makedev(major, minor)) == 0);
		/* A drive may have no medium. */
		fd = open("b", O_RDONLY | O_NONBLOCK);
		close(fd);
		if (fd >= 0)
			return closedir(devices) == 0;
		NEED(unlink("b") == 0);
	}
	return 0;
}

static void block_device(void)
{
	NEED(block_node());
	kept_flags(CALL(open("b", O_RDONLY | O_SYNC)));
}

const struct way open_ways[] = {
	{ "open-libc", by_libc, LIBC_OPEN " 2 0 0" },
	{ "openat-libc", by_libc_at, "openat 2 0 0" },
#ifdef LIBC_OPENS_AT
	{ "open-fortify", by_fortify, "openat 3 0 0" },
#else
	{ "open-fortify", by_fortify, "open 2 0 0,openat 1 0 0" },
#endif
#ifdef SYS_open
	{ "open-raw", by_raw_open, "open 2 0 0" },
#endif
	{ "openat-raw", by_raw_openat, "openat 1 0 0" },
	{ "creat", by_creat, "" },
	{ "mkostemp", by_mkostemp, LIBC_OPEN " 1 0 0" },
	{ "open-handle", by_handle, "open_by_handle_at 2 0 0" },
	{ "open-unnamed", unnamed, LIBC_OPEN " 1 0 0" },
	{ "open-relative", relative, "openat 5 0 0" },
	{ "open-umask", with_umask, LIBC_OPEN " 2 0 0" },
	{ "open-user", as_other_user, LIBC_OPEN " 1 0 0" },
	{ "open-flags", with_other_flags, LIBC_OPEN " 5 0 0,fsync 1 0 0" },
	{ "open-link", by_link, LIBC_OPEN " 3 0 0" },
	{ "open-link-away", by_link_away, LIBC_OPEN " 0 2 0" },
	{ "open-path", only_path, "" },
	{ "open-no-disk", no_disk, LIBC_OPEN " 0 6 0" },
	{ "open-block", block_device, LIBC_OPEN " 0 1 0" },
	{ 0 },
};
