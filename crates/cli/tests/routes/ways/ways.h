/* Ways into a sync. Each way runs in a process of its own, named after it, so
 * that an account by program is an account by way. What it prints must be the
 * same with and without a hold, but for `disk-sync=`. */
#ifndef WAYS_H
#define WAYS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the accounts must say: "CALL HELD PASSED REFUSED", several separated by
 * commas; `*` for a count that depends on time, `N+` where signals meet calls as
 * they are answered: before Linux 5.19 such a call is made, and counted, again.
 * Empty: nothing is seen. */
struct way {
	const char *name; /* at most 15 bytes: it becomes the process's name */
	void (*go)(void);
	const char *accounts;
};

extern const struct way fsync_ways[], range_ways[], msync_ways[], open_ways[], open_error_ways[],
	openat2_ways[], transfer_ways[], aio_ways[], device_ways[], register_ways[], storm_ways[], end_ways[],
	process_ways[];

/* The directory of a way is empty and on a disk; this one is in memory. */
#define MEMORY "/dev/shm"

/* The call that libc's open makes. */
#ifdef __GLIBC__
#define LIBC_OPEN "openat"
#else
#define LIBC_OPEN "open"
#endif

#define UNTOUCHED 77
#define SYNC_BITS (O_SYNC | O_DSYNC)

/* Adds a line to what the way says. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void outcome(const char *what, long value);

/* Does a call and says what it returned and what became of errno. */
#define CALL(expression)                                                                           \
	({                                                                                         \
		errno = UNTOUCHED;                                                                 \
		long value_ = (long)(expression);                                                  \
		outcome(#expression, value_);                                                      \
		value_;                                                                            \
	})

/* Ends the way: something that it only builds upon has failed. */
#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			say("set-up failed: %s: %s", #condition, strerror(errno));                 \
			finish();                                                                  \
		}                                                                                  \
	} while (0)
void finish(void) __attribute__((noreturn));

/* Opens `name` with O_SYNC, appends one byte, syncs; says whether all went well. */
int round_of(const char *name);
/* Syncs the file `name` by io_uring and says how far that came. */
int ring(const char *name);

/* A file with `text` in it. */
void make_file(const char *name, const char *text);
/* A new file, open for reading and writing. */
int file(const char *name);
/* A new unlinked file in memory. */
int memory_file(void);
/* Says the flags of a descriptor whose sync flag is taken away, or kept. */
void disk_flags(int fd);
void kept_flags(int fd);
/* Says mode and owner, and what the file holds. */
void look_at(int fd);
/* Writes "data" and says what the file holds. */
void write_to(int fd);

/* Not in every libc's headers. */
struct open_how_ {
	uint64_t flags, mode, resolve;
};
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif
#define RWF_DSYNC_ 2
#define RWF_SYNC_ 4
#define RWF_APPEND_ 16

#endif
