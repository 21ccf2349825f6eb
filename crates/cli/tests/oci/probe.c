/* Prints the result of each call. Descriptor 999 is not open: a hold answers 0 where the
   kernel would fail the call. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long result)
{
	printf("%s %s\n", what, result < 0 ? strerrorname_np(errno) : "0");
}

int main(int count, char **words)
{
	if (count > 1 && strcmp(words[1], "wait") == 0) {
		pause();
		return 1;
	}
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("fsync", fsync(999));
	say("fdatasync", fdatasync(999));
	say("syncfs", syscall(SYS_syncfs, 999));
	say("sync_file_range", syscall(SYS_sync_file_range, 999, 0L, 0L, 0L));
	say("msync", msync(page + 1, 4096, MS_SYNC));
	say("msync-async", msync(page + 1, 4096, MS_ASYNC));
	say("io_uring", syscall(SYS_io_uring_setup, 4, 0L));
	say("openat2", syscall(SYS_openat2, -1, "x", 0L, 0L));
	return count > 1 ? 0 : 7;
}
