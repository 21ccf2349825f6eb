/* openat2: the flags are in memory, which is unchanged afterwards. */
#include "ways.h"
#include <sys/mman.h>

#define NEW (O_RDWR | O_CREAT)
#define BENEATH 8
#define IN_ROOT 16
#define NO_SYMLINKS 4
#define CACHED 32

static long openat2_(int directory, const char *path, const struct open_how_ *how, size_t size)
{
	return syscall(SYS_openat2, directory, path, how, size);
}
#define OPEN(directory, path, how) CALL(openat2_(directory, path, how, sizeof *(how)))

static void say_how(const struct open_how_ *how)
{
	say("how: flags=%llo mode=%llo resolve=%llx", (unsigned long long)how->flags,
	    (unsigned long long)how->mode, (unsigned long long)how->resolve);
}

static void plain(void)
{
	struct open_how_ how = { .flags = NEW | O_SYNC, .mode = 0640 };
	int fd = OPEN(AT_FDCWD, "a", &how);
	say_how(&how);
	disk_flags(fd);
	write_to(fd);
	how.flags = O_RDWR | O_DSYNC | O_CLOEXEC;
	how.mode = 0;
	fd = OPEN(AT_FDCWD, "a", &how);
	say_how(&how);
	disk_flags(fd);
	look_at(fd);
}

static const struct open_how_ constant = { .flags = NEW | O_SYNC, .mode = 0644 };

static void by_constant(void)
{
	int fd = OPEN(AT_FDCWD, "a", &constant);
	say_how(&constant);
	disk_flags(fd);
}

/* The flags are in read-only shared memory: neither the memory nor the call is changed. */
static void by_shared_constant(void)
{
	make_file("how", "");
	int at = open("how", O_RDWR);
	NEED(write(at, &constant, sizeof constant) == sizeof constant && close(at) == 0);
	at = open("how", O_RDONLY);
	const struct open_how_ *how = mmap(NULL, sizeof *how, PROT_READ, MAP_SHARED, at, 0);
	NEED(how != MAP_FAILED);
	int fd = OPEN(AT_FDCWD, "a", how);
	say_how(how);
	kept_flags(fd);
}

static void without(void)
{
	struct open_how_ how = { .flags = NEW, .mode = 0640 };
	disk_flags(OPEN(AT_FDCWD, "a", &how));
}

/* "/a" does not exist, but exists below the directory. */
static void in_root(void)
{
	NEED(mkdir("d", 0755) == 0);
	make_file("d/a", "content");
	int directory = open("d", O_PATH), memory = open(MEMORY, O_PATH);
	struct open_how_ how = { .flags = O_RDWR | O_SYNC, .resolve = IN_ROOT };
	int fd = OPEN(directory, "/a", &how);
	disk_flags(fd);
	look_at(fd);
	how.resolve = BENEATH;
	disk_flags(OPEN(directory, "a", &how));
	OPEN(directory, "/a", &how);
	OPEN(directory, "../d/a", &how);
	/* No call is held in memory, even if the same path exists on the disk. */
	how.flags = O_RDWR | O_TMPFILE | O_SYNC;
	how.mode = 0600;
	how.resolve = IN_ROOT;
	kept_flags(OPEN(memory, "/", &how));
}

static void resolved(void)
{
	make_file("a", "content");
	NEED(symlink("a", "l") == 0);
	struct open_how_ how = { .flags = O_RDWR | O_SYNC, .resolve = NO_SYMLINKS };
	OPEN(AT_FDCWD, "l", &how);
	disk_flags(OPEN(AT_FDCWD, "a", &how));
	how.resolve = CACHED;
	how.flags |= O_TRUNC;
	OPEN(AT_FDCWD, "a", &how);
}

static void bad(void)
{
	struct {
		struct open_how_ how;
		uint64_t more;
	} large = { { .flags = NEW | O_SYNC, .mode = 0644 }, 0 };
	make_file("a", "content");
	disk_flags(CALL(openat2_(AT_FDCWD, "a", &large.how, sizeof large)));
	large.more = 1;
	CALL(openat2_(AT_FDCWD, "a", &large.how, sizeof large));
	CALL(openat2_(AT_FDCWD, "a", &large.how, 8));
	CALL(openat2_(AT_FDCWD, "a", NULL, sizeof constant));
	struct open_how_ how = { .flags = O_PATH | O_SYNC };
	OPEN(AT_FDCWD, "a", &how);
	how.flags = O_RDWR | O_SYNC | 1ULL << 40;
	OPEN(AT_FDCWD, "a", &how);
	how.flags = O_RDWR | O_SYNC;
	how.mode = 0600;
	OPEN(AT_FDCWD, "a", &how);
	say_how(&how);
	how.mode = 0;
	OPEN(AT_FDCWD, "absent", &how);
	OPEN(AT_FDCWD, (char *)1, &how);
	say_how(&how);
}

const struct way openat2_ways[] = {
	{ "openat2", plain, "openat2 2 0 0" },
	{ "openat2-const", by_constant, "openat2 1 0 0" },
	{ "openat2-shared", by_shared_constant, "openat2 0 1 0" },
	{ "openat2-without", without, "" },
	{ "openat2-root", in_root, "openat2 2 1 0" },
	{ "openat2-resolve", resolved, "openat2 1 0 0" },
	{ "openat2-bad", bad, "openat2 1 1 0" },
	{ 0 },
};
