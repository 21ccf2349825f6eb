/* ways list           lists the ways and their expected accounts
 * ways all            runs every way, each in an empty directory below the current one
 * ways NAME...        runs these ways
 * ways as NAME FILE   syncs FILE, in a process called NAME
 * ways rounds COUNT   opens, writes and syncs COUNT times, in one process
 * ways ring FILE      syncs FILE by io_uring */
#include "ways.h"
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static const struct way *const groups[] = {
	fsync_ways,    range_ways, msync_ways,  open_ways,     open_error_ways, openat2_ways,
	transfer_ways, aio_ways,   device_ways, register_ways, storm_ways,      process_ways,
	end_ways,
};
#define GROUPS (sizeof groups / sizeof *groups)

static char text[1 << 16];
static size_t length;
static const char *current = "";

void say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	length += snprintf(text + length, sizeof text - length, "%s: ", current);
	length += vsnprintf(text + length, sizeof text - length, format, arguments);
	length += snprintf(text + length, sizeof text - length, "\n");
	va_end(arguments);
	if (length >= sizeof text)
		abort();
}

void outcome(const char *what, long value)
{
	int number = errno;
	if (value == -1)
		say("%s = -1, errno %d (%s)", what, number, strerror(number));
	else
		say("%s = %ld, errno %s", what, value, number == UNTOUCHED ? "untouched" : "changed");
}

void finish(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_FSIZE, &limit);
	}
	for (size_t at = 0; at < length;) {
		ssize_t written = write(1, text + at, length - at);
		if (written > 0)
			at += written;
		else if (errno != EINTR)
			break;
	}
	_exit(0);
}

void make_file(const char *name, const char *content)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	NEED(fd >= 0);
	NEED(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	NEED(close(fd) == 0);
}

int file(const char *name)
{
	make_file(name, "content");
	int fd = open(name, O_RDWR);
	NEED(fd >= 0);
	return fd;
}

int memory_file(void)
{
	char name[] = MEMORY "/ways-XXXXXX";
	int fd = mkstemp(name);
	NEED(fd >= 0);
	unlink(name);
	return fd;
}

void disk_flags(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	say("flags=%o disk-sync=%d", flags & ~SYNC_BITS, (flags & SYNC_BITS) != 0);
}

void kept_flags(int fd)
{
	say("flags=%o", fcntl(fd, F_GETFL));
}

void look_at(int fd)
{
	struct stat meta;
	char content[64] = "";
	NEED(fstat(fd, &meta) == 0);
	ssize_t got = pread(fd, content, sizeof content - 1, 0);
	say("mode=%o owner=%d:%d size=%ld content=%s", meta.st_mode, (int)meta.st_uid,
	    (int)meta.st_gid, (long)meta.st_size, got < 0 ? "unreadable" : content);
}

void write_to(int fd)
{
	CALL(write(fd, "data", 4));
	look_at(fd);
}

static int directory_for(const char *name)
{
	return mkdir(name, 0755) == 0 && chdir(name) == 0;
}

static int run_way(const struct way *way)
{
	pid_t child = fork();
	if (child == 0) {
		current = way->name;
		prctl(PR_SET_NAME, way->name, 0, 0, 0);
		umask(022);
		NEED(directory_for(way->name));
		way->go();
		finish();
	}
	int status;
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	if (status != 0) {
		dprintf(1, "%s: ended with status %#x\n", way->name, status);
		return 1;
	}
	return 0;
}

static int for_each(int (*act)(const struct way *), const char *name)
{
	int bad = 0, found = 0;
	for (size_t group = 0; group < GROUPS; group++)
		for (const struct way *way = groups[group]; way->name; way++)
			if (!name || strcmp(name, way->name) == 0) {
				bad |= act(way);
				found = 1;
			}
	if (!found)
		dprintf(2, "no way %s\n", name);
	return bad || !found;
}

static int list_way(const struct way *way)
{
	if (strlen(way->name) > 15)
		return 1;
	printf("%s\t", way->name);
	printf(way->accounts, alarm_rounds());
	return puts("") < 0;
}

static int rounds(int wanted)
{
	int good = 0;
	current = "rounds";
	prctl(PR_SET_NAME, current, 0, 0, 0);
	for (int at = 0; at < wanted; at++)
		good += round_of("rounds");
	say("%d of %d", good, wanted);
	finish();
}

static int be(const char *name, const char *path)
{
	current = name;
	prctl(PR_SET_NAME, name, 0, 0, 0);
	int fd = open(path, O_WRONLY | O_CREAT | O_SYNC, 0644);
	NEED(fd >= 0);
	disk_flags(fd);
	CALL(write(fd, "data", 4));
	CALL(fsync(fd));
	finish();
}

int main(int count, char **words)
{
	int bad = 0;
	if (count == 4 && strcmp(words[1], "as") == 0)
		return be(words[2], words[3]);
	if (count == 3 && strcmp(words[1], "rounds") == 0)
		return rounds(atoi(words[2]));
	if (count == 3 && strcmp(words[1], "ring") == 0)
		return ring(words[2]);
	if (count == 2 && strcmp(words[1], "list") == 0)
		return for_each(list_way, NULL);
	if (count == 2 && strcmp(words[1], "all") == 0)
		return for_each(run_way, NULL);
	for (int word = 1; word < count; word++)
		bad |= for_each(run_way, words[word]);
	return bad;
}
