/* aio by raw calls. The requests are unchanged afterwards. */
#include "ways.h"
#include <sys/eventfd.h>

enum { PREAD_ = 0, PWRITE_ = 1, FSYNC_ = 2, FDSYNC_ = 3, PWRITEV_ = 8 };

struct request { /* struct iocb, little endian */
	uint64_t data;
	uint32_t key, flags_of_transfer;
	uint16_t opcode;
	int16_t priority;
	uint32_t fd;
	uint64_t buffer, bytes;
	int64_t offset;
	uint64_t reserved;
	uint32_t flags, event_fd;
};

struct event {
	uint64_t data, object;
	int64_t result, result2;
};

static unsigned long context;

static struct request request(int opcode, int fd)
{
	return (struct request){ .opcode = opcode, .fd = fd, .data = opcode + 100 };
}

static struct request transfer(int fd, const char *text, long at, int flags)
{
	struct request made = request(PWRITE_, fd);
	made.buffer = (uintptr_t)text;
	made.bytes = strlen(text);
	made.offset = at;
	made.flags_of_transfer = flags;
	return made;
}

/* Submits `count` requests; prints the result of each, in their order. */
static void submit(struct request *requests, long count)
{
	struct request copies[8], *pointers[8];
	struct event events[8];
	long timeout[2] = { 5, 0 };
	for (long at = 0; at < count; at++)
		pointers[at] = &requests[at];
	memcpy(copies, requests, count * sizeof *requests);
	if (!context)
		NEED(syscall(SYS_io_setup, 32, &context) == 0);
	long taken = CALL(syscall(SYS_io_submit, context, count, pointers));
	/* The kernel itself writes the key. */
	for (long at = 0; at < count; at++)
		copies[at].key = requests[at].key;
	say("requests %s", memcmp(copies, requests, count * sizeof *requests) ? "changed" : "kept");
	if (taken <= 0)
		return;
	long got = syscall(SYS_io_getevents, context, taken, taken, events, timeout);
	say("%ld events", got);
	for (long at = 0; at < count; at++)
		for (long from = 0; from < got; from++)
			if (events[from].object == (uintptr_t)&requests[at])
				say("%ld: data=%d result=%d,%d", at, (int)events[from].data,
				    (int)events[from].result, (int)events[from].result2);
}

static void alone(void)
{
	int fd = file("a"), only = open("a", O_RDONLY), writing = open("a", O_WRONLY);
	struct request one = request(FSYNC_, fd);
	submit(&one, 1);
	one = request(FDSYNC_, only);
	submit(&one, 1);
	one = request(FSYNC_, writing);
	submit(&one, 1);
	one = request(FDSYNC_, open("a", O_RDWR | O_DIRECT));
	submit(&one, 1);
	look_at(fd);
}

static void amid(void)
{
	int fd = file("a");
	struct request some[] = { transfer(fd, "one", 0, 0), request(FDSYNC_, fd),
				  transfer(fd, "two", 3, 0), request(FSYNC_, fd) };
	submit(some, 4);
	look_at(fd);
}

static void flagged(void)
{
	int fd = file("a");
	struct iovec part = { "vector", 6 };
	struct request some[] = { transfer(fd, "one", 0, RWF_DSYNC_), request(PWRITEV_, fd) };
	some[1].buffer = (uintptr_t)&part;
	some[1].bytes = 1;
	some[1].offset = 3;
	some[1].flags_of_transfer = RWF_SYNC_;
	submit(some, 2);
	look_at(fd);
}

static void unflagged(void)
{
	int fd = file("a");
	struct request some[] = { transfer(fd, "one", 0, 0), transfer(fd, "two", 3, 0) };
	submit(some, 2);
	look_at(fd);
}

/* The kernel refuses a sync whose other fields are not 0. */
static void odd(void)
{
	int fd = file("a");
	static char buffer[16] = "untouched";
	struct request some[] = { transfer(fd, "one", 0, 0), request(FSYNC_, fd) };
	some[1].buffer = (uintptr_t)buffer;
	some[1].bytes = 4;
	submit(some, 2);
	submit(some + 1, 1);
	say("buffer %s", buffer);
	some[1] = request(FSYNC_, fd);
	some[1].flags_of_transfer = RWF_DSYNC_;
	submit(some + 1, 1);
	some[1] = request(FDSYNC_, fd);
	some[1].offset = 1;
	submit(some + 1, 1);
	some[1] = request(FDSYNC_, fd);
	some[1].reserved = 1;
	submit(some + 1, 1);
	look_at(fd);
}

static void other(void)
{
	int ends[2], fd = file("a"), directory = open(".", O_RDONLY);
	NEED(pipe(ends) == 0);
	struct request one = request(FSYNC_, ends[1]);
	submit(&one, 1);
	one = request(FSYNC_, directory);
	submit(&one, 1);
	one = request(FSYNC_, memory_file());
	submit(&one, 1);
	one = request(FDSYNC_, -1);
	submit(&one, 1);
	/* A batch that is partly held and partly passed counts as both. */
	struct request some[] = { request(FSYNC_, fd), request(FSYNC_, ends[0]) };
	submit(some, 2);
}

static void signalling(void)
{
	int fd = file("a"), counter = eventfd(0, 0);
	uint64_t count = 0;
	struct request one = request(FSYNC_, fd);
	one.flags = 1;
	one.event_fd = counter;
	submit(&one, 1);
	CALL(read(counter, &count, sizeof count));
	say("count %d", (int)count);
}

static void bad(void)
{
	int fd = file("a");
	struct request one = request(FSYNC_, fd), *pointers[] = { &one, NULL };
	NEED(syscall(SYS_io_setup, 32, &context) == 0);
	CALL(syscall(SYS_io_submit, context, 2, pointers));
	CALL(syscall(SYS_io_submit, context, 1, pointers + 1));
	CALL(syscall(SYS_io_submit, context, 1, NULL));
	CALL(syscall(SYS_io_submit, context, -1L, pointers));
	CALL(syscall(SYS_io_submit, context, 0, pointers));
	CALL(syscall(SYS_io_submit, 1L, 1, pointers));
	say("opcode %d", one.opcode);
}

const struct way aio_ways[] = {
	{ "aio-alone", alone, "io_submit 4 0 0" },
	{ "aio-amid", amid, "io_submit 1 0 0" },
	{ "aio-flagged", flagged, "io_submit 1 0 0" },
	{ "aio-unflagged", unflagged, "" },
	{ "aio-odd", odd, "io_submit 0 4 0" },
	{ "aio-other", other, "io_submit 1 5 0" },
	{ "aio-signalling", signalling, "io_submit 1 0 0" },
	{ "aio-bad", bad, "io_submit 1 0 0" },
	{ 0 },
};
