/* Makes the syncs that its words name, each after a write to PATH: `calls PATH NAME COUNT...`. After
   `processes` or `threads`, each of COUNT does the rest. After `interrupted`, a signal comes every
   COUNT ms. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long good(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
		exit(1);
	}
	return result;
}

static const char *path;

static int opened(int flags)
{
	return good(open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0644), path);
}

static void one(const char *name, int file)
{
	good(write(file, "x", 1), "write");
	if (strcmp(name, "fsync") == 0)
		good(fsync(file), name);
	else if (strcmp(name, "fdatasync") == 0)
		good(fdatasync(file), name);
	else if (strcmp(name, "syncfs") == 0)
		good(syncfs(file), name);
	else if (strcmp(name, "sync_file_range") == 0)
		good(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE), name);
	else if (strcmp(name, "sync") == 0)
		sync();
	else if (strcmp(name, "dsync") != 0)
		exit(2);
}

static void ignored(int number)
{
}

/* The kernel begins a call again that the signal has interrupted. */
static void interrupted(long period)
{
	struct sigaction action = {.sa_handler = ignored, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, period * 1000}, {0, period * 1000}};
	good(sigaction(SIGALRM, &action, NULL), "sigaction");
	good(setitimer(ITIMER_REAL, &timer, NULL), "setitimer");
}

struct words {
	int count;
	char **at;
};

static void in_processes(long count, struct words words);
static void in_threads(long count, struct words words);

static void all(struct words words)
{
	for (; words.count >= 2; words.count -= 2, words.at += 2) {
		const char *name = words.at[0];
		long count = atol(words.at[1]);
		struct words rest = {words.count - 2, words.at + 2};
		if (strcmp(name, "processes") == 0)
			return in_processes(count, rest);
		if (strcmp(name, "threads") == 0)
			return in_threads(count, rest);
		if (strcmp(name, "interrupted") == 0) {
			interrupted(count);
			continue;
		}
		int file = opened(strcmp(name, "dsync") == 0 ? O_DSYNC : 0);
		while (count-- > 0)
			one(name, file);
		close(file);
	}
}

static void in_processes(long count, struct words words)
{
	for (long at = 0; at < count; at++)
		if (good(fork(), "fork") == 0) {
			all(words);
			exit(0);
		}
	for (int status; wait(&status) > 0;)
		if (status != 0)
			exit(1);
}

static void *threaded(void *words)
{
	all(*(struct words *)words);
	return NULL;
}

static void in_threads(long count, struct words words)
{
	pthread_t threads[count];
	for (long at = 0; at < count; at++)
		if (pthread_create(&threads[at], NULL, threaded, &words) != 0)
			exit(1);
	for (long at = 0; at < count; at++)
		pthread_join(threads[at], NULL);
}

int main(int count, char **words)
{
	path = words[1];
	all((struct words){count - 2, words + 2});
	return 0;
}
