/* Processes that sync: after vfork, by posix_spawn, under a tracer. */
#include "ways.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>

extern char **environ;

/* The child's results are in shared memory: musl makes vfork a fork where it has no code for it. */
static void by_vfork(void)
{
	volatile struct { int opened, flags, synced; } *child_saw = mmap(
		NULL, sizeof *child_saw, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(child_saw != MAP_FAILED);
	pid_t child = vfork();
	if (child == 0) {
		child_saw->opened = syscall(SYS_openat, AT_FDCWD, "a", O_RDWR | O_CREAT | O_SYNC, 0644);
		child_saw->flags = fcntl(child_saw->opened, F_GETFL);
		child_saw->synced = syscall(SYS_fsync, child_saw->opened);
		_exit(0);
	}
	NEED(child > 0 && waitpid(child, NULL, 0) == child);
	say("opened %d flags=%o disk-sync=%d synced %d", child_saw->opened,
	    child_saw->flags & ~SYNC_BITS, (child_saw->flags & SYNC_BITS) != 0, child_saw->synced);
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
