/* Many calls at once, and calls that signals interrupt. */
#include "ways.h"
#include <pthread.h>
#include <sys/time.h>

#define THREADS 64
#define PER_THREAD 20

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
}

static void every(long micros, int flags)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval timer = { { 0, micros }, { 0, micros } };
	sigaction(SIGALRM, &action, NULL);
	NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

long setting(const char *name, long without)
{
	const char *value = getenv(name);
	return value ? atol(value) : without;
}

long alarm_rounds(void)
{
	return setting("ALARM_ROUNDS", 2000);
}

int round_of(const char *name)
{
	int fd = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_SYNC, 0644);
	int good = fd >= 0 && write(fd, ".", 1) == 1 && fsync(fd) == 0;
	return close(fd) == 0 && good;
}

static void under_alarms(void)
{
	int good = 0, rounds = alarm_rounds();
	struct stat meta;
	every(setting("ALARM_MICROS", 100), SA_RESTART);
	for (int at = 0; at < rounds; at++)
		good += round_of("a");
	every(0, 0);
	NEED(stat("a", &meta) == 0);
	say("%d of %d rounds, size %d, signals %s", good, rounds, (int)meta.st_size,
	    alarms > 0 ? "came" : "did not come");
}

static void *thread_of_rounds(void *number)
{
	char name[20];
	long good = 0;
	snprintf(name, sizeof name, "%ld", (long)number);
	for (int at = 0; at < PER_THREAD; at++)
		good += round_of(name);
	return (void *)good;
}

static void by_threads(void)
{
	pthread_t threads[THREADS];
	long all = 0;
	for (long at = 0; at < THREADS; at++)
		NEED(pthread_create(&threads[at], NULL, thread_of_rounds, (void *)at) == 0);
	for (int at = 0; at < THREADS; at++) {
		void *good;
		NEED(pthread_join(threads[at], &good) == 0);
		all += (long)good;
	}
	say("%ld of %d rounds", all, THREADS * PER_THREAD);
}

static volatile int cleaned, looping;

static void clean(void *argument)
{
	(void)argument;
	cleaned = 1;
}

static void *loop_of_syncs(void *file)
{
	pthread_cleanup_push(clean, NULL);
	for (;;) {
		if (fsync((int)(long)file) != 0)
			break;
		looping = 1;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

/* fsync is a cancellation point, and the only one in the loop. */
static void cancelled(void)
{
	int fd = file("a"), ended = 0;
	for (int at = 0; at < 20; at++) {
		pthread_t thread;
		void *value;
		cleaned = looping = 0;
		NEED(pthread_create(&thread, NULL, loop_of_syncs, (void *)(long)fd) == 0);
		while (!looping)
			usleep(100);
		NEED(pthread_cancel(thread) == 0 && pthread_join(thread, &value) == 0);
		ended += value == PTHREAD_CANCELED && cleaned;
	}
	say("%d of 20 cancelled and cleaned", ended);
}

static void *open_to_read(void *name)
{
	return (void *)(long)open(name, O_RDONLY | O_SYNC);
}

/* An open that waits for a writer does not delay other calls. */
static void beside_a_blocked_open(void)
{
	pthread_t thread;
	void *reader;
	int good = 0;
	NEED(mkfifo("f", 0600) == 0);
	NEED(pthread_create(&thread, NULL, open_to_read, "f") == 0);
	usleep(20000);
	for (int at = 0; at < 100; at++)
		good += round_of("a");
	int writer = open("f", O_WRONLY | O_SYNC);
	NEED(writer >= 0 && pthread_join(thread, &reader) == 0 && (long)reader >= 0);
	kept_flags((long)reader);
	kept_flags(writer);
	CALL(write(writer, "x", 1));
	say("%d of 100 rounds", good);
}

static int leased;

static void give_up_lease(int signal)
{
	(void)signal;
	usleep(50000);
	fcntl(leased, F_SETLEASE, F_UNLCK);
}

/* Opens "a", on which the parent process has a lease; prints the result. */
static void open_leased(int flags)
{
	pid_t child = fork();
	if (child == 0) {
		int fd = CALL(open("a", flags));
		if (fd >= 0)
			disk_flags(fd);
		finish();
	}
	int good = 0;
	for (int at = 0; at < 50; at++)
		good += round_of("b");
	while (waitpid(child, NULL, 0) == -1)
		;
	say("%d of 50 rounds", good);
}

/* An open of a file on the disk, without its flag, waits for a lease. */
static void beside_a_lease(void)
{
	make_file("a", "content");
	leased = open("a", O_RDONLY);
	signal(SIGIO, give_up_lease);
	NEED(fcntl(leased, F_SETLEASE, F_RDLCK) == 0);
	open_leased(O_WRONLY | O_SYNC);
}

/* A signal without SA_RESTART interrupts the waiting open, as without a hold. */
static void interrupted(void)
{
	make_file("a", "content");
	leased = open("a", O_RDONLY);
	signal(SIGIO, SIG_IGN);
	NEED(fcntl(leased, F_SETLEASE, F_RDLCK) == 0);
	CALL(open("a", O_WRONLY | O_SYNC | O_NONBLOCK));
	pid_t child = fork();
	if (child == 0) {
		/* Repeated: on a slow machine a signal may arrive before the open waits. */
		struct itimerval timer = { { 0, 50000 }, { 0, 50000 } };
		struct sigaction action = { .sa_handler = on_alarm };
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &timer, NULL);
		CALL(open("a", O_WRONLY | O_SYNC));
		finish();
	}
	while (waitpid(child, NULL, 0) == -1)
		;
}

const struct way storm_ways[] = {
	{ "storm-alarms", under_alarms, "openat %1$ld 0 0,fsync %1$ld+ 0 0" },
	{ "storm-threads", by_threads, "openat 1280 0 0,fsync 1280 0 0" },
	{ "cancelled", cancelled, "fsync * 0 0" },
#ifdef LIBC_OPENS_AT
	{ "blocked", beside_a_blocked_open, "openat 100 2 0,fsync 100 0 0" },
	{ "leased", beside_a_lease, "openat 51 0 0,fsync 50+ 0 0" },
#else
	{ "blocked", beside_a_blocked_open, "open 0 2 0,openat 100 0 0,fsync 100 0 0" },
	{ "leased", beside_a_lease, "open 1 0 0,openat 50 0 0,fsync 50+ 0 0" },
#endif
	{ "interrupted", interrupted, "" },
	{ 0 },
};
