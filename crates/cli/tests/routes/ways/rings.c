/* io_uring, by raw calls: one fsync. */
#include "ways.h"
#include <sys/mman.h>

#define FSYNC 3
#define GET_EVENTS 1
#define COMPLETIONS 0x8000000
#define ENTRIES 0x10000000

struct setup { /* struct io_uring_params */
	uint32_t entries, completions, flags, cpu, idle, features, queue, reserved[3];
	uint32_t head, tail, mask, ring_entries, ring_flags, dropped, array, reserved1;
	uint64_t address;
	uint32_t head2, tail2, mask2, ring_entries2, overflow, events, flags2, reserved2;
	uint64_t address2;
};

static char *map(int fd, size_t size, off_t what)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, what);
}

/* Returns the result of an fsync of `fd` by the ring `queue`. */
static int sync_by(int queue, const struct setup *setup, int fd)
{
	char *submissions = map(queue, setup->array + 4 * setup->entries, 0);
	char *completions = map(queue, setup->events + 16 * setup->completions, COMPLETIONS);
	char *entries = map(queue, 64 * setup->entries, ENTRIES);
	if (submissions == MAP_FAILED || completions == MAP_FAILED || entries == MAP_FAILED)
		return -1;
	entries[0] = FSYNC;
	memcpy(entries + 4, &fd, sizeof fd);
	*(uint32_t *)(submissions + setup->array) = 0;
	__atomic_store_n((uint32_t *)(submissions + setup->tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, queue, 1, 1, GET_EVENTS, NULL, 0) != 1)
		return -1;
	int result;
	memcpy(&result, completions + setup->events + 8, sizeof result);
	return result;
}

int ring(const char *name)
{
	struct setup setup = { 0 };
	int fd = open(name, O_RDWR | O_CREAT, 0644);
	int queue = syscall(SYS_io_uring_setup, 1, &setup);
	if (queue == -1)
		printf("io_uring_setup: %s\n", strerror(errno));
	else
		printf("fsync by io_uring: %d\n", sync_by(queue, &setup, fd));
	return 0;
}
