/* fsync, fdatasync, sync, syncfs. */
#include "ways.h"
#include <sys/eventfd.h>
#include <sys/socket.h>

static int memfd(void)
{
	return syscall(SYS_memfd_create, "ways", 0);
}

static void on_file(void)
{
	int fd = file("a");
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_read_only(void)
{
	make_file("a", "content");
	int fd = open("a", O_RDONLY);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_unlinked(void)
{
	int fd = file("a");
	NEED(unlink("a") == 0);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_directory(void)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_closed(void)
{
	int fd = file("a");
	close(fd);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
	CALL(fsync(1 << 30));
}

static void on_path(void)
{
	make_file("a", "content");
	int fd = open("a", O_PATH);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_negative(void)
{
	CALL(fsync(-1));
	CALL(fdatasync(-100));
	CALL(fsync((int)0x80000000));
	CALL(syncfs(-1));
}

static void on_pipe(void)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	CALL(fsync(ends[0]));
	CALL(fdatasync(ends[1]));
}

static void on_fifo(void)
{
	NEED(mkfifo("f", 0600) == 0);
	int fd = open("f", O_RDWR);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_socket(void)
{
	int ends[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CALL(fsync(ends[0]));
	CALL(fdatasync(ends[1]));
}

static void on_eventfd(void)
{
	int fd = eventfd(0, 0);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_proc(void)
{
	int fd = open("/proc/self/status", O_RDONLY);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_null(void)
{
	int fd = open("/dev/null", O_RDWR);
	CALL(fsync(fd));
	CALL(fdatasync(fd));
}

static void on_memory(void)
{
	int fd = memory_file(), anonymous = memfd();
	CALL(fsync(fd));
	CALL(fdatasync(fd));
	CALL(fsync(anonymous));
	CALL(fdatasync(anonymous));
}

/* The kernel uses only the low half of the register. */
static void by_high_bits(void)
{
#ifdef __LP64__
	long fd = file("a") | 0x500000000;
	CALL(syscall(SYS_fsync, fd));
	CALL(syscall(SYS_fdatasync, fd));
#else
	long fd = file("a");
	CALL(syscall(SYS_fsync, fd));
	CALL(syscall(SYS_fdatasync, fd));
#endif
}

static void whole_sync(void)
{
	CALL(syscall(SYS_sync));
	errno = UNTOUCHED;
	sync();
	say("errno %d", errno);
}

static void file_system(void)
{
	int fd = file("a"), directory = open(".", O_RDONLY);
	CALL(syncfs(fd));
	CALL(syncfs(directory));
}

static void other_file_system(void)
{
	int ends[2], fd = memory_file(), null = open("/dev/null", O_RDONLY);
	NEED(pipe(ends) == 0);
	CALL(syncfs(ends[0]));
	CALL(syncfs(fd));
	CALL(syncfs(null));
}

static void bad_file_system(void)
{
	int path = open(".", O_PATH), closed = dup(path);
	close(closed);
	CALL(syncfs(path));
	CALL(syncfs(closed));
}

#define BOTH(held, passed) "fsync " held " " passed " 0,fdatasync " held " " passed " 0"

const struct way fsync_ways[] = {
	{ "sync-file", on_file, BOTH("1", "0") },
	{ "sync-read-only", on_read_only, BOTH("1", "0") },
	{ "sync-unlinked", on_unlinked, BOTH("1", "0") },
	{ "sync-directory", on_directory, BOTH("1", "0") },
	{ "sync-closed", on_closed, "fsync 0 2 0,fdatasync 0 1 0" },
	{ "sync-path", on_path, BOTH("0", "1") },
	{ "sync-negative", on_negative, "" },
	{ "sync-pipe", on_pipe, BOTH("0", "1") },
	{ "sync-fifo", on_fifo, BOTH("0", "1") },
	{ "sync-socket", on_socket, BOTH("0", "1") },
	{ "sync-eventfd", on_eventfd, BOTH("0", "1") },
	{ "sync-proc", on_proc, BOTH("0", "1") },
	{ "sync-null", on_null, BOTH("0", "1") },
	{ "sync-memory", on_memory, BOTH("0", "2") },
	{ "sync-high-bits", by_high_bits, BOTH("1", "0") },
	{ "sync-all", whole_sync, "sync 2 0 0" },
	{ "syncfs-disk", file_system, "syncfs 2 0 0" },
	{ "syncfs-other", other_file_system, "syncfs 0 3 0" },
	{ "syncfs-bad", bad_file_system, "syncfs 0 2 0" },
	{ 0 },
};
