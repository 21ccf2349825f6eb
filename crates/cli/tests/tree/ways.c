/* ways list      lists the ways to write in a tree, with the path that each changes; "-"
 *                for a change that no comparison of trees shows
 * ways NAME      writes in that way below /data, and checks the result
 * Exits with 77 if the file system has no such call. Static: nothing can be preloaded. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NONE 77
/* Fails the way if `what` is false, and prints the failed call. */
#define NEED(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("%s: %s\n", #what, strerror(errno));                                \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static int begins_with(const char *path, const char *text)
{
	char content[64] = "";
	int fd = open(path, O_RDONLY);
	NEED(fd >= 0);
	NEED(read(fd, content, strlen(text)) == (ssize_t)strlen(text));
	NEED(close(fd) == 0);
	errno = 0;
	NEED(strcmp(content, text) == 0);
	return 0;
}

static struct stat meta_of(const char *path)
{
	struct stat meta = {0};
	if (lstat(path, &meta) != 0)
		memset(&meta, 0, sizeof meta);
	return meta;
}

static int written(int fd, const char *path)
{
	NEED(fd >= 0);
	NEED(pwrite(fd, "changed", 7, 0) == 7);
	NEED(close(fd) == 0);
	return begins_with(path, "changed");
}

static int by_open(void) { return written(open("file", O_WRONLY), "file"); }

static int by_openat(void)
{
	int directory = open("/data", O_PATH | O_DIRECTORY);
	return written(openat(directory, "file", O_RDWR), "file");
}

static int by_o_trunc(void)
{
	NEED(open("file", O_WRONLY | O_TRUNC) >= 0);
	NEED(meta_of("file").st_size == 0);
	return 0;
}

static int by_o_append(void)
{
	int fd = open("file", O_WRONLY | O_APPEND);
	NEED(write(fd, "more", 4) == 4);
	NEED(meta_of("file").st_size == 65536 + 4);
	return 0;
}

static int by_fopen(void)
{
	FILE *file = fopen("file", "r+");
	NEED(file);
	NEED(fputs("changed", file) >= 0 && fclose(file) == 0);
	return begins_with("file", "changed");
}

static int by_pwritev(void)
{
	struct iovec parts[] = {{"chan", 4}, {"ged", 3}};
	int fd = open("file", O_WRONLY);
	NEED(pwritev(fd, parts, 2, 0) == 7);
	return begins_with("file", "changed");
}

static int by_proc_fd(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", open("file", O_RDONLY));
	return written(open(path, O_RDWR), "file");
}

static int by_o_path(void)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", open("file", O_PATH));
	return written(open(path, O_WRONLY), "file");
}

static int by_symlink_followed(void) { return written(open("symlink", O_WRONLY), "file"); }

static int by_hard_link_written(void)
{
	NEED(written(open("hard", O_WRONLY), "hard") == 0);
	return begins_with("far/hard", "changed");
}

static int by_mmap(void)
{
	int fd = open("file", O_RDWR);
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	NEED(page != MAP_FAILED);
	memcpy(page, "changed", 7);
	NEED(msync(page, 4096, MS_SYNC) == 0 && munmap(page, 4096) == 0);
	return begins_with("file", "changed");
}

static int by_mprotect(void)
{
	int fd = open("file", O_RDWR);
	char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	NEED(page != MAP_FAILED && close(fd) == 0);
	NEED(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
	memcpy(page, "changed", 7);
	return begins_with("file", "changed");
}

static int by_truncate(void)
{
	NEED(truncate("file", 10) == 0);
	NEED(meta_of("file").st_size == 10);
	return 0;
}

static int by_ftruncate(void)
{
	NEED(ftruncate(open("file", O_WRONLY), 100000) == 0);
	NEED(meta_of("file").st_size == 100000);
	return 0;
}

static int by_fallocate(void)
{
	NEED(fallocate(open("file", O_WRONLY), 0, 65536, 65536) == 0);
	NEED(meta_of("file").st_size == 131072);
	return 0;
}

static int by_punch_hole(void)
{
	int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, fd = open("file", O_RDWR);
	char byte = 1;
	NEED(fallocate(fd, how, 0, 8192) == 0);
	NEED(pread(fd, &byte, 1, 100) == 1 && byte == 0);
	return 0;
}

static int by_zero_range(void)
{
	int fd = open("file", O_RDWR);
	char byte = 1;
	NEED(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 8192) == 0);
	NEED(pread(fd, &byte, 1, 100) == 1 && byte == 0);
	return 0;
}

static int by_copy_file_range(void)
{
	int from = open("other", O_RDONLY), to = open("file", O_WRONLY);
	NEED(copy_file_range(from, NULL, to, NULL, 7, 0) == 7);
	return begins_with("file", "another");
}

static int by_sendfile(void)
{
	int from = open("other", O_RDONLY), to = open("file", O_WRONLY);
	NEED(sendfile(to, from, NULL, 7) == 7);
	return begins_with("file", "another");
}

static int by_splice(void)
{
	int from = open("other", O_RDONLY), to = open("file", O_WRONLY), ends[2];
	NEED(pipe(ends) == 0);
	NEED(splice(from, NULL, ends[1], NULL, 7, 0) == 7);
	NEED(splice(ends[0], NULL, to, NULL, 7, 0) == 7);
	return begins_with("file", "another");
}

static int by_ficlone(void)
{
	int from = open("other", O_RDONLY), to = open("file", O_WRONLY);
	if (ioctl(to, FICLONE, from) != 0 && (errno == EOPNOTSUPP || errno == ENOTTY))
		return NONE;
	return begins_with("file", "another");
}

static int by_chmod(void)
{
	NEED(chmod("file", 0701) == 0);
	NEED((meta_of("file").st_mode & 07777) == 0701);
	return 0;
}

static int by_fchmod(void)
{
	/* A descriptor that is open for reading is enough. */
	NEED(fchmod(open("file", O_RDONLY), 04711) == 0);
	NEED((meta_of("file").st_mode & 07777) == 04711);
	return 0;
}

static int by_chmod_of_directory(void)
{
	NEED(chmod("directory", 0700) == 0);
	NEED((meta_of("directory").st_mode & 07777) == 0700);
	return 0;
}

static int by_chown(void)
{
	NEED(chown("file", 12, 34) == 0);
	NEED(meta_of("file").st_uid == 12 && meta_of("file").st_gid == 34);
	return 0;
}

static int by_fchown(void)
{
	NEED(fchown(open("file", O_RDONLY), 12, 34) == 0);
	NEED(meta_of("file").st_uid == 12);
	return 0;
}

static int by_lchown(void)
{
	NEED(lchown("symlink", 12, 34) == 0);
	NEED(meta_of("symlink").st_uid == 12 && meta_of("file").st_uid == 0);
	return 0;
}

static int by_utimensat(void)
{
	struct timespec times[] = {{1, 2}, {3, 4}};
	NEED(utimensat(AT_FDCWD, "file", times, 0) == 0);
	NEED(meta_of("file").st_mtim.tv_sec == 3 && meta_of("file").st_mtim.tv_nsec == 4);
	return 0;
}

static int by_futimens(void)
{
	struct timespec times[] = {{1, 2}, {3, 4}};
	NEED(futimens(open("file", O_RDONLY), times) == 0);
	NEED(meta_of("file").st_mtim.tv_sec == 3);
	return 0;
}

static int by_setxattr(void)
{
	char value[8] = "";
	NEED(setxattr("file", "user.new", "value", 5, 0) == 0);
	NEED(getxattr("file", "user.new", value, sizeof value) == 5);
	return 0;
}

static int by_setxattr_over(void)
{
	char value[8] = "";
	NEED(fsetxattr(open("attributes", O_RDONLY), "user.old", "new", 3, XATTR_REPLACE) == 0);
	NEED(getxattr("attributes", "user.old", value, sizeof value) == 3);
	return 0;
}

static int by_removexattr(void)
{
	NEED(removexattr("attributes", "user.old") == 0);
	NEED(getxattr("attributes", "user.old", NULL, 0) == -1 && errno == ENODATA);
	return 0;
}

static int by_capability(void)
{
	/* cap_net_bind_service, effective: capabilities(7), linux/capability.h. */
	uint32_t value[] = {0x02000001, 1 << 10, 0, 0, 0};
	NEED(setxattr("file", "security.capability", value, sizeof value, 0) == 0);
	return 0;
}

static int by_acl(void)
{
	/* acl(5), linux/posix_acl_xattr.h: what setfacl -m u:1234:rwx writes. */
	struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entries[5];
	} value = {2, {{1, 6, -1}, {2, 7, 1234}, {4, 4, -1}, {0x10, 7, -1}, {0x20, 4, -1}}};
	NEED(setxattr("file", "system.posix_acl_access", &value, sizeof value, 0) == 0);
	NEED((meta_of("file").st_mode & 0777) == 0674);
	return 0;
}

static int by_setflags(void)
{
	int fd = open("file", O_RDONLY), flags = 0;
	NEED(ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_NOATIME_FL));
	flags |= FS_NOATIME_FL;
	NEED(ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0);
	flags = 0;
	NEED(ioctl(open("file", O_RDONLY), FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_NOATIME_FL);
	return 0;
}

static int by_link(void)
{
	NEED(link("file", "new") == 0);
	NEED(meta_of("file").st_nlink == 2 && meta_of("new").st_ino == meta_of("file").st_ino);
	return written(open("new", O_WRONLY), "file");
}

static int by_rename(void)
{
	NEED(rename("other", "new") == 0 && access("other", F_OK) == -1);
	return begins_with("new", "another");
}

static int by_rename_over(void)
{
	NEED(rename("other", "file") == 0);
	return begins_with("file", "another");
}

static int by_rename_of_directory(void)
{
	NEED(rename("directory", "new") == 0 && access("directory", F_OK) == -1);
	return begins_with("new/inner", "original");
}

static int by_exchange(void)
{
	NEED(renameat2(AT_FDCWD, "other", AT_FDCWD, "file", RENAME_EXCHANGE) == 0);
	NEED(begins_with("other", "original") == 0);
	return begins_with("file", "another");
}

static int by_unlink(void)
{
	NEED(unlink("file") == 0);
	NEED(access("file", F_OK) == -1 && errno == ENOENT);
	return 0;
}

static int by_unlink_and_again(void)
{
	NEED(unlink("file") == 0);
	int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0600);
	return written(fd, "file");
}

static int by_directory_again(void)
{
	NEED(unlink("directory/inner") == 0 && rmdir("directory") == 0);
	NEED(mkdir("directory", 0755) == 0);
	NEED(access("directory/inner", F_OK) == -1);
	return 0;
}

static int by_symlink(void)
{
	NEED(symlink("file", "new") == 0);
	return begins_with("new", "original");
}

static int by_mknod(void)
{
	NEED(mknod("new", S_IFCHR | 0600, makedev(1, 3)) == 0);
	NEED(S_ISCHR(meta_of("new").st_mode));
	return 0;
}

static int by_mkfifo(void)
{
	NEED(mkfifo("new", 0600) == 0);
	NEED(S_ISFIFO(meta_of("new").st_mode));
	return 0;
}

static int by_mkdir(void)
{
	NEED(mkdir("new", 0755) == 0);
	NEED(S_ISDIR(meta_of("new").st_mode));
	return 0;
}

static int by_rmdir(void)
{
	NEED(rmdir("empty") == 0);
	NEED(access("empty", F_OK) == -1);
	return 0;
}

static int by_tmpfile(void)
{
	char path[64];
	int fd = open(".", O_WRONLY | O_TMPFILE, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		return NONE;
	NEED(fd >= 0 && write(fd, "changed", 7) == 7);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	NEED(linkat(AT_FDCWD, path, AT_FDCWD, "new", AT_SYMLINK_FOLLOW) == 0);
	return begins_with("new", "changed");
}

static int by_handle(void)
{
	union {
		struct file_handle head;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} handle = {.head.handle_bytes = MAX_HANDLE_SZ};
	int mount;
	if (name_to_handle_at(AT_FDCWD, "file", &handle.head, &mount, 0) != 0)
		return errno == EOPNOTSUPP || errno == EOVERFLOW ? NONE : (perror("handle"), 1);
	int fd = open_by_handle_at(open("/data", O_RDONLY), &handle.head, O_WRONLY);
	if (fd < 0 && errno == ESTALE)
		return NONE;
	return written(fd, "file");
}

static const struct way {
	const char *name, *path;
	int (*go)(void);
} ways[] = {
	{"open", "data/file", by_open},
	{"openat", "data/file", by_openat},
	{"o-trunc", "data/file", by_o_trunc},
	{"o-append", "data/file", by_o_append},
	{"fopen", "data/file", by_fopen},
	{"pwritev", "data/file", by_pwritev},
	{"proc-fd", "data/file", by_proc_fd},
	{"o-path", "data/file", by_o_path},
	{"through-symlink", "data/file", by_symlink_followed},
	{"hard-link-written", "data/far/hard", by_hard_link_written},
	{"mmap", "data/file", by_mmap},
	{"mprotect", "data/file", by_mprotect},
	{"truncate", "data/file", by_truncate},
	{"ftruncate", "data/file", by_ftruncate},
	{"fallocate", "data/file", by_fallocate},
	{"punch-hole", "data/file", by_punch_hole},
	{"zero-range", "data/file", by_zero_range},
	{"copy-file-range", "data/file", by_copy_file_range},
	{"sendfile", "data/file", by_sendfile},
	{"splice", "data/file", by_splice},
	{"ficlone", "data/file", by_ficlone},
	{"chmod", "data/file", by_chmod},
	{"fchmod", "data/file", by_fchmod},
	{"chmod-directory", "data/directory", by_chmod_of_directory},
	{"chown", "data/file", by_chown},
	{"fchown", "data/file", by_fchown},
	{"lchown", "data/symlink", by_lchown},
	{"utimensat", "data/file", by_utimensat},
	{"futimens", "data/file", by_futimens},
	{"setxattr", "data/file", by_setxattr},
	{"setxattr-over", "data/attributes", by_setxattr_over},
	{"removexattr", "data/attributes", by_removexattr},
	{"capability", "data/file", by_capability},
	{"acl", "data/file", by_acl},
	{"setflags", "-", by_setflags},
	{"link", "data/new", by_link},
	{"rename", "data/new", by_rename},
	{"rename-over", "data/file", by_rename_over},
	{"rename-directory", "data/new/inner", by_rename_of_directory},
	{"exchange", "data/other", by_exchange},
	{"unlink", "data/file", by_unlink},
	{"unlink-and-again", "data/file", by_unlink_and_again},
	{"directory-again", "data/directory/inner", by_directory_again},
	{"symlink", "data/new", by_symlink},
	{"mknod", "data/new", by_mknod},
	{"mkfifo", "data/new", by_mkfifo},
	{"mkdir", "data/new", by_mkdir},
	{"rmdir", "data/empty", by_rmdir},
	{"tmpfile", "data/new", by_tmpfile},
	{"handle", "data/file", by_handle},
};

int main(int count, char **words)
{
	int is_list = count == 2 && strcmp(words[1], "list") == 0;
	if (count != 2 || (!is_list && chdir("/data") != 0))
		return 1;
	for (size_t at = 0; at < sizeof ways / sizeof *ways; at++) {
		if (is_list)
			printf("%s %s\n", ways[at].name, ways[at].path);
		else if (strcmp(ways[at].name, words[1]) == 0)
			return ways[at].go();
	}
	return is_list ? 0 : 1;
}
