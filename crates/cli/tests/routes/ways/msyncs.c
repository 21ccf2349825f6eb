/* msync. */
#include "ways.h"
#include <sys/mman.h>

static size_t page;

/* Maps four shared pages of the new file `name`, and closes the descriptor. */
static char *pages(const char *name)
{
	page = sysconf(_SC_PAGESIZE);
	int fd = file(name);
	NEED(ftruncate(fd, 4 * page) == 0);
	char *area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	NEED(area != MAP_FAILED);
	close(fd);
	return area;
}

static void good(void)
{
	char *area = pages("a");
	memcpy(area, "mapped", 7);
	CALL(msync(area, 4 * page, MS_SYNC));
	CALL(msync(area + page, page, MS_SYNC));
	CALL(msync(area + page, 10, MS_SYNC));
	int fd = open("a", O_RDONLY);
	look_at(fd);
}

static void read_only(void)
{
	char *area = pages("a");
	NEED(mprotect(area, page, PROT_READ) == 0);
	CALL(msync(area, 4 * page, MS_SYNC));
}

static void two_files(void)
{
	char *first = pages("a");
	int fd = file("b");
	NEED(ftruncate(fd, page) == 0);
	NEED(mmap(first + page, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == first + page);
	CALL(msync(first, 4 * page, MS_SYNC));
}

static void unaligned(void)
{
	char *area = pages("a");
	CALL(msync(area + 1, page, MS_SYNC));
	CALL(msync(area + 1, page, MS_ASYNC));
}

static void hole(void)
{
	char *area = pages("a");
	NEED(munmap(area + page, page) == 0);
	CALL(msync(area, 4 * page, MS_SYNC));
	CALL(msync(area + page, page, MS_SYNC));
	CALL(msync(area, 4 * page, MS_SYNC | MS_INVALIDATE));
	CALL(msync(area, 4 * page, MS_ASYNC));
}

static void other_flags(void)
{
	char *area = pages("a");
	CALL(msync(area, page, MS_ASYNC));
	CALL(msync(area, page, MS_INVALIDATE));
	CALL(msync(area, page, MS_ASYNC | MS_INVALIDATE));
	CALL(msync(area, page, 0));
}

static void invalidating(void)
{
	char *area = pages("a");
	CALL(msync(area, 4 * page, MS_SYNC | MS_INVALIDATE));
	NEED(mlock(area, page) == 0);
	CALL(msync(area, 4 * page, MS_SYNC | MS_INVALIDATE));
	CALL(msync(area, 4 * page, MS_INVALIDATE));
}

static void bad_flags(void)
{
	char *area = pages("a");
	CALL(msync(area, page, MS_SYNC | MS_ASYNC));
	CALL(msync(area, page, MS_SYNC | 0x100));
}

static void no_length(void)
{
	char *area = pages("a");
	CALL(msync(area, 0, MS_SYNC));
	CALL(msync(area + 1, 0, MS_SYNC));
	CALL(msync(area, (size_t)-1, MS_SYNC));
	CALL(msync(area, (size_t)-8192, MS_SYNC));
}

static void no_disk(void)
{
	char *area = pages("a");
	int fd = open("a", O_RDWR), memory = memory_file();
	int how = MAP_PRIVATE | MAP_FIXED;
	NEED(mmap(area, page, PROT_READ | PROT_WRITE, how, fd, 0) == area);
	CALL(msync(area, page, MS_SYNC));
	NEED(mmap(area, page, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0) == area);
	CALL(msync(area, page, MS_SYNC));
	NEED(ftruncate(memory, page) == 0);
	NEED(mmap(area, page, PROT_READ, MAP_SHARED | MAP_FIXED, memory, 0) == area);
	CALL(msync(area, page, MS_SYNC));
}

const struct way msync_ways[] = {
	{ "msync-good", good, "msync 3 0 0" },
	{ "msync-read-only", read_only, "msync 1 0 0" },
	{ "msync-two", two_files, "msync 1 0 0" },
	{ "msync-unaligned", unaligned, "msync 0 1 0" },
	{ "msync-hole", hole, "msync 0 3 0" },
	{ "msync-flags", other_flags, "" },
	{ "msync-inval", invalidating, "msync 1 0 0" },
	{ "msync-bad-flags", bad_flags, "msync 0 2 0" },
	{ "msync-no-length", no_length, "msync 0 4 0" },
	{ "msync-no-disk", no_disk, "msync 0 3 0" },
	{ 0 },
};
