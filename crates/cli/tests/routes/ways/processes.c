/* Processes that sync: after vfork, by posix_spawn, under a tracer. */
#include "ways.h"
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/time.h>

extern char **environ;

static void by_vfork(void)
{
	volatile int opened = -1, synced = -1, flags = -1;
	pid_t child = vfork();
	if (child == 0) {
		opened = syscall(SYS_openat, AT_FDCWD, "a", O_RDWR | O_CREAT | O_SYNC, 0644);
		flags = fcntl(opened, F_GETFL);
		synced = syscall(SYS_fsync, opened);
		_exit(0);
	}
	NEED(child > 0 && waitpid(child, NULL, 0) == child);
	say("opened %d flags=%o disk-sync=%d synced %d", opened, flags & ~SYNC_BITS,
	    (flags & SYNC_BITS) != 0, synced);
}

/* posix_spawn itself opens the file, between vfork and exec. */
static void by_spawn(void)
{
	char path[4096] = "";
	char *words[] = { path, "as", "spawn", "a", NULL };
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status;
	NEED(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
	NEED(posix_spawn_file_actions_init(&actions) == 0);
	int flags = O_WRONLY | O_CREAT | O_SYNC;
	NEED(posix_spawn_file_actions_addopen(&actions, 9, "b", flags, 0644) == 0);
	NEED(posix_spawn(&child, path, &actions, NULL, words, environ) == 0);
	NEED(waitpid(child, &status, 0) == child);
	say("status %d", status);
}

/* A debugger traces the child already, so its open passes with the flag. */
static void traced(void)
{
	pid_t child = fork();
	if (child == 0) {
		NEED(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		raise(SIGSTOP);
		int fd = CALL(syscall(SYS_openat, AT_FDCWD, "a", O_RDWR | O_CREAT | O_SYNC, 0644));
		kept_flags(fd);
		CALL(fsync(fd));
		finish();
	}
	int status, stops = 0;
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		stops++;
		ptrace(PTRACE_CONT, child, 0, 0);
	}
	say("%d stop, status %d", stops, status);
}

static int continued_by(pid_t child)
{
	usleep(300);
	return kill(child, SIGCONT);
}

/* A process is stopped and continued repeatedly, also while its call is rewritten. */
static void stopped(void)
{
	pid_t child = fork();
	if (child == 0) {
		int good = 0;
		for (int at = 0; at < 300; at++) {
			int fd = syscall(SYS_openat, AT_FDCWD, "a", O_RDWR | O_CREAT | O_SYNC, 0644);
			good += fd >= 0 && fsync(fd) == 0 && close(fd) == 0;
		}
		say("%d of 300", good);
		finish();
	}
	int status, seen = 0;
	while (waitpid(child, &status, WNOHANG) == 0) {
		kill(child, SIGSTOP);
		pid_t got = waitpid(child, &status, WUNTRACED);
		if (got != child || !WIFSTOPPED(status))
			break;
		seen++;
		continued_by(child);
		usleep(setting("ALARM_MICROS", 300));
	}
	say("stops %s, status %d", seen > 0 ? "were seen" : "were missed", status);
}

const struct way process_ways[] = {
	{ "vfork", by_vfork, "openat 1 0 0,fsync 1 0 0" },
	{ "spawn", by_spawn, LIBC_OPEN " 2 0 0,fsync 1 0 0" },
	{ "traced", traced, "openat 0 1 0,fsync 1 0 0" },
	{ "stopped", stopped, "openat 300 0 0,fsync 300+ 0 0" },
	{ 0 },
};
