/* preadv2 and pwritev2 with RWF_SYNC and RWF_DSYNC. */
#include "ways.h"
#include <sys/resource.h>

static char buffer[16];

static long write_at(int fd, const char *text, long at, int flags)
{
	struct iovec parts[2] = { { (char *)text, 1 }, { (char *)text + 1, strlen(text) - 1 } };
	long written = syscall(SYS_pwritev2, fd, parts, 2, at, at < 0 ? -1L : 0L, flags);
	int number = errno;
	if (parts[0].iov_len != 1 || parts[1].iov_len != strlen(text) - 1)
		say("the vector has changed");
	errno = number;
	return written;
}

static long read_at(int fd, long at, int flags)
{
	struct iovec part = { buffer, sizeof buffer - 1 };
	memset(buffer, 0, sizeof buffer);
	return syscall(SYS_preadv2, fd, &part, 1, at, at < 0 ? -1L : 0L, flags);
}

static void writing(void)
{
	int fd = file("a");
	CALL(write_at(fd, "first", 0, RWF_DSYNC_));
	CALL(write_at(fd, "second", 3, RWF_SYNC_));
	CALL(write_at(fd, "third", -1, RWF_DSYNC_ | RWF_SYNC_));
	look_at(fd);
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(write_at(fd, "end", 0, RWF_APPEND_ | RWF_DSYNC_));
	look_at(fd);
	CALL(write_at(fd, "plain", 0, 0));
}

static void reading(void)
{
	int fd = file("a");
	CALL(read_at(fd, 2, RWF_SYNC_));
	say("read %s", buffer);
	CALL(read_at(fd, -1, RWF_DSYNC_));
	say("read %s", buffer);
}

static void failing(void)
{
	int fd = file("a"), only = open("a", O_RDONLY), closed = dup(fd);
	struct iovec wild = { (char *)1, 4 }, wide = { buffer, (size_t)-1 };
	close(closed);
	CALL(write_at(closed, "text", 0, RWF_DSYNC_));
	CALL(write_at(-1, "text", 0, RWF_DSYNC_));
	CALL(write_at(only, "text", 0, RWF_SYNC_));
	CALL(write_at(fd, "text", -2, RWF_SYNC_));
	CALL(write_at(fd, "text", 0, RWF_SYNC_ | 1 << 30));
	CALL(syscall(SYS_pwritev2, fd, &wild, 1, 0, 0, RWF_DSYNC_));
	CALL(syscall(SYS_pwritev2, fd, (void *)1, 1, 0, 0, RWF_DSYNC_));
	CALL(syscall(SYS_pwritev2, fd, &wide, 1, 0, 0, RWF_DSYNC_));
	CALL(syscall(SYS_pwritev2, fd, &wide, 5000, 0, 0, RWF_DSYNC_));
	CALL(syscall(SYS_preadv2, fd, &wild, 1, 0, 0, RWF_SYNC_));
	look_at(fd);
}

static void other(void)
{
	int ends[2], memory = memory_file(), directory = open(".", O_RDONLY);
	NEED(pipe(ends) == 0);
	CALL(write_at(ends[1], "text", -1, RWF_DSYNC_));
	CALL(write_at(ends[1], "text", 0, RWF_DSYNC_));
	CALL(write_at(memory, "text", 0, RWF_SYNC_));
	CALL(read_at(directory, 0, RWF_SYNC_));
}

static volatile sig_atomic_t exceeded;

static void on_excess(int signal)
{
	(void)signal;
	exceeded++;
}

static void too_much(void)
{
	int fd = file("a");
	struct rlimit limit;
	signal(SIGXFSZ, on_excess);
	NEED(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	limit.rlim_cur = 10;
	NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CALL(write_at(fd, "abcdef", 6, RWF_DSYNC_));
	CALL(write_at(fd, "abcdef", 10, RWF_DSYNC_));
	say("SIGXFSZ %d", (int)exceeded);
	look_at(fd);
}

const struct way transfer_ways[] = {
	{ "rwf-write", writing, "pwritev2 4 0 0" },
	{ "rwf-read", reading, "preadv2 2 0 0" },
	{ "rwf-fail", failing, "pwritev2 0 2 0" },
	{ "rwf-other", other, "pwritev2 0 3 0,preadv2 0 1 0" },
	{ "rwf-too-much", too_much, "pwritev2 1 0 0" },
	{ 0 },
};
