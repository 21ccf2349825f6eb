/* sync_file_range: a call that only starts write-back is held, too. */
#include "ways.h"

static void every_flag(void)
{
	int fd = file("a");
	for (unsigned flags = 0; flags < 8; flags++)
		CALL(sync_file_range(fd, 0, 4096, flags));
	CALL(sync_file_range(fd, 1 << 20, 0, 7));
}

static void bad_flags(void)
{
	int fd = file("a");
	CALL(sync_file_range(fd, 0, 0, 8));
	CALL(sync_file_range(fd, 0, 0, 0x80000007));
}

static void bad_ranges(void)
{
	int fd = file("a");
	CALL(sync_file_range(fd, -1, 0, 7));
	CALL(sync_file_range(fd, 0, -1, 7));
	CALL(sync_file_range(fd, INT64_MAX, 1, 7));
	CALL(sync_file_range(fd, INT64_MAX, 0, 7));
	CALL(sync_file_range(fd, INT64_MIN, INT64_MIN, 7));
}

/* Arguments that are split into halves: the low half alone would be another range. */
static void large_ranges(void)
{
	int fd = file("a");
	CALL(sync_file_range(fd, (off_t)5 << 32, (off_t)6 << 32, 7));
	CALL(sync_file_range(fd, 0xffffffff, 0xffffffff, 7));
}

static void no_file(void)
{
	int ends[2], path = open(".", O_PATH), closed = dup(path), null = open("/dev/null", O_RDWR);
	NEED(pipe(ends) == 0 && close(closed) == 0);
	CALL(sync_file_range(ends[1], 0, 0, 7));
	CALL(sync_file_range(null, 0, 0, 7));
	CALL(sync_file_range(path, 0, 0, 7));
	CALL(sync_file_range(closed, 0, 0, 7));
	CALL(sync_file_range(-1, 0, 0, 7));
	CALL(sync_file_range(-2, 0, 0, 0x53594e43));
}

static void other_file(void)
{
	int fd = memory_file(), directory = open(".", O_RDONLY);
	CALL(sync_file_range(fd, 0, 0, 7));
	CALL(sync_file_range(directory, 0, 0, 7));
}

const struct way range_ways[] = {
	{ "range-flags", every_flag, "sync_file_range 9 0 0" },
	{ "range-bad-flags", bad_flags, "sync_file_range 0 2 0" },
	{ "range-bad", bad_ranges, "sync_file_range 1 4 0" },
	{ "range-large", large_ranges, "sync_file_range 2 0 0" },
	{ "range-no-file", no_file, "sync_file_range 0 4 0" },
	{ "range-other", other_file, "sync_file_range 1 1 0" },
	{ 0 },
};
