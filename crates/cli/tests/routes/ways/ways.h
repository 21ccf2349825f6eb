/* Ways into a sync. Each way runs in a process of its own, named after the way, so
 * that the accounts by program are accounts by way. The output of a way must be the
 * same with and without a hold, except for `disk-sync=`. */
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

/* The expected accounts: "CALL HELD PASSED REFUSED", several separated by commas.
 * `*` stands for a count that depends on time, `N+` for a count of calls that signals
 * may interrupt while they are answered: before Linux 5.19 such a call is made, and
 * counted, again. An empty text: no call is counted. */
struct way {
	const char *name; /* at most 15 bytes: it becomes the process's name */
	void (*go)(void);
	const char *accounts; /* a format with alarm_rounds() as its argument */
};

extern const struct way fsync_ways[], range_ways[], msync_ways[], open_ways[], open_error_ways[],
	openat2_ways[], transfer_ways[], aio_ways[], device_ways[], register_ways[], storm_ways[], end_ways[],
	process_ways[];

/* A directory in memory. The directory of a way is empty and on a disk. */
#define MEMORY "/dev/shm"

/* The call that libc's open makes. aarch64 has no other. */
#if defined(__GLIBC__) || !defined(SYS_open)
#define LIBC_OPENS_AT
#define LIBC_OPEN "openat"
#else
#define LIBC_OPEN "open"
#endif

#define UNTOUCHED 77
#define SYNC_BITS (O_SYNC | O_DSYNC)

/* Adds a line to the output of the way. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void outcome(const char *what, long value);

/* Makes a call and prints its return value and errno. */
#define CALL(expression)                                                                           \
	({                                                                                         \
		errno = UNTOUCHED;                                                                 \
		long value_ = (long)(expression);                                                  \
		outcome(#expression, value_);                                                      \
		value_;                                                                            \
	})

/* Ends the way if a step of its set-up has failed. */
#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			say("set-up failed: %s: %s", #condition, strerror(errno));                 \
			finish();                                                                  \
		}                                                                                  \
	} while (0)
void finish(void) __attribute__((noreturn));

/* Returns a number of the environment. An emulated machine takes much longer for one call: there a signal in
 * each 100 us leaves no call the time to end. */
long setting(const char *name, long without);
/* Returns how often "storm-alarms" opens and syncs. */
long alarm_rounds(void);
/* Opens `name` with O_SYNC, appends one byte, syncs; returns whether every call succeeded. */
int round_of(const char *name);
/* Syncs the file `name` by io_uring and prints the result, or the step that failed. */
int ring(const char *name);

/* Makes a file with the content `text`. */
void make_file(const char *name, const char *text);
/* Makes a file, open for reading and writing. */
int file(const char *name);
/* Makes an unlinked file in memory. */
int memory_file(void);
/* Print the flags of a descriptor whose sync flag is removed, or kept. */
void disk_flags(int fd);
void kept_flags(int fd);
/* Prints the mode, the owner and the content of the file. */
void look_at(int fd);
/* Writes "data" and prints the content of the file. */
void write_to(int fd);

/* struct open_how, which not every libc declares. */
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
