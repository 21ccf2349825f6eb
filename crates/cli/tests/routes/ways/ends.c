/* The process of a thread is killed or executes another program while the open of the
 * thread, without its flag, waits. */
#include "ways.h"
#include <pthread.h>

#define ROUNDS 12

/* Takes a lease on "a" that blocks every open for writing. */
static int lend(void)
{
	make_file("a", "content");
	int leased = open("a", O_RDONLY);
	signal(SIGIO, SIG_IGN);
	NEED(fcntl(leased, F_SETLEASE, F_RDLCK) == 0);
	return leased;
}

static void *open_it(void *unused)
{
	(void)unused;
	return (void *)syscall(SYS_openat, AT_FDCWD, "a", O_WRONLY | O_SYNC);
}

static void execute(void)
{
	execl("/bin/sh", "sh", "-c", "exit 7", NULL);
	_exit(99);
}

static void *execute_soon(void *micros)
{
	usleep((long)micros);
	execute();
	return NULL;
}

static void wait_for_ever(long micros)
{
	(void)micros;
	for (;;)
		pause();
}

static void leader_executes(long micros)
{
	usleep(micros);
	execute();
}

static void thread_executes(long micros)
{
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, execute_soon, (void *)micros) == 0);
	open_it(NULL);
}

/* Starts processes in which a second thread opens the file and the first one calls
 * `then`; prints how many end with `wanted`. The moment of the end varies around that
 * of the open. */
static void end_all(void (*then)(long micros), int kills, int wanted)
{
	int leased = lend(), good = 0;
	for (int at = 0; at < ROUNDS; at++) {
		long micros = at * at * 150;
		pid_t child = fork();
		if (child == 0) {
			pthread_t thread;
			NEED(pthread_create(&thread, NULL, open_it, NULL) == 0);
			then(micros);
		}
		usleep(micros);
		if (kills)
			NEED(kill(child, SIGKILL) == 0);
		int status = 0;
		while (waitpid(child, &status, 0) == -1 && errno == EINTR)
			;
		good += status == wanted;
	}
	say("%d of %d ended", good, ROUNDS);
	NEED(fcntl(leased, F_SETLEASE, F_UNLCK) == 0);
}

static void killed(void)
{
	end_all(wait_for_ever, 1, SIGKILL);
}

static void executed_by_leader(void)
{
	end_all(leader_executes, 0, 7 << 8);
}

static void executed_by_thread(void)
{
	end_all(thread_executes, 0, 7 << 8);
}

const struct way end_ways[] = {
	{ "killed-amid", killed, "openat * * 0" },
	{ "leader-executes", executed_by_leader, "openat * * 0" },
	{ "thread-executes", executed_by_thread, "openat * * 0" },
	{ 0 },
};
