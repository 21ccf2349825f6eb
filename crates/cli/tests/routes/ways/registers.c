/* A call whose arguments are rewritten leaves every register as the kernel would. */
#include "ways.h"
#include <sys/mman.h>

#ifdef __x86_64__

struct frame {
	long number, arguments[6], saved[2];
};
#define FRAME(...) ((struct frame){ __VA_ARGS__, { 0 } })

/* Makes the call by `syscall`; stores the registers afterwards in `frame`. */
static long enter(struct frame *frame)
{
	register long r10 __asm__("r10") = frame->arguments[3];
	register long r8 __asm__("r8") = frame->arguments[4];
	register long r9 __asm__("r9") = frame->arguments[5];
	register long r12 __asm__("r12") = 0x1212121212121212;
	register long r15 __asm__("r15") = 0x1515151515151515;
	long value = frame->number;
	__asm__ volatile("syscall"
			 : "+a"(value), "+D"(frame->arguments[0]), "+S"(frame->arguments[1]),
			   "+d"(frame->arguments[2]), "+r"(r10), "+r"(r8), "+r"(r9), "+r"(r12),
			   "+r"(r15)
			 :
			 : "rcx", "r11", "memory");
	frame->arguments[3] = r10;
	frame->arguments[4] = r8;
	frame->arguments[5] = r9;
	frame->saved[0] = r12;
	frame->saved[1] = r15;
	return value;
}

static void check(const char *what, struct frame frame)
{
	struct frame after = frame;
	long value = enter(&after);
	int kept = memcmp(frame.arguments, after.arguments, sizeof frame.arguments) == 0 &&
		   after.saved[0] == 0x1212121212121212 && after.saved[1] == 0x1515151515151515;
	say("%s = %ld, registers %s", what, value, kept ? "kept" : "changed");
}

static void kept(void)
{
	long page = sysconf(_SC_PAGESIZE), fd = file("a");
	struct iovec part = { "text", 4 };
	char *area = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
	NEED(area != MAP_FAILED);
	/* The kernel ignores the upper half of the flags and preserves it. */
	long flags = 0x7700000000000000 | O_RDWR | O_SYNC;
	check("openat", FRAME(SYS_openat, { AT_FDCWD, (long)"a", flags, 1, 2, 3 }));
	check("open", FRAME(SYS_open, { (long)"a", flags, 11, 1, 2, 3 }));
	check("open fails", FRAME(SYS_open, { (long)"b", flags, 11, 1, 2, 3 }));
	check("pwritev2",
	      FRAME(SYS_pwritev2, { fd, (long)&part, 1, 0, 9, 0x100000000 | RWF_DSYNC_ }));
	check("msync", FRAME(SYS_msync, { (long)area, page, MS_SYNC | MS_INVALIDATE, 1, 2 }));
	check("fsync", FRAME(SYS_fsync, { fd, 1, 2, 3, 4, 5 }));
}

/* The 32-bit entry, from a 64-bit program. */
static void other_entry(void)
{
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	NEED(low != MAP_FAILED);
	make_file("a", "content");
	strcpy(low, "a");
	long value = 5, path = (long)low, flags = O_RDWR | O_SYNC, mode = 7;
	__asm__ volatile("int $0x80"
			 : "+a"(value), "+b"(path), "+c"(flags), "+d"(mode)
			 :
			 : "memory", "r8", "r9", "r10", "r11");
	say("open = %ld, registers %s", value,
	    path == (long)low && flags == (O_RDWR | O_SYNC) && mode == 7 ? "kept" : "changed");
	disk_flags(value);
	look_at(value);
	long synced = 118;
	__asm__ volatile("int $0x80" : "+a"(synced) : "b"(value) : "memory", "r8", "r9", "r10", "r11");
	say("fsync = %ld", synced);
}

#define KEPT "openat 1 0 0,open 1 0 0,pwritev2 1 0 0,msync 1 0 0,fsync 1 0 0"
#define OTHER "open 1 0 0,fsync 1 0 0"

#else /* i386 */

static void kept(void)
{
	make_file("a", "content");
	long value = SYS_open, path = (long)"a", flags = O_RDWR | O_SYNC, mode = 7, si = 8, di = 9;
	__asm__ volatile("int $0x80"
			 : "+a"(value), "+b"(path), "+c"(flags), "+d"(mode), "+S"(si), "+D"(di)
			 :
			 : "memory");
	int kept = flags == (O_RDWR | O_SYNC) && mode == 7 && si == 8 && di == 9;
	say("open = %ld, registers %s", value, kept ? "kept" : "changed");
	disk_flags(value);
}

static void other_entry(void)
{
	make_file("a", "content");
	int fd = CALL(syscall(SYS_open, "a", O_RDWR | O_SYNC));
	CALL(syscall(SYS_fsync, fd));
}

#define KEPT "open 1 0 0"
#define OTHER "open 1 0 0,fsync 1 0 0"

#endif

const struct way register_ways[] = {
	{ "registers", kept, KEPT },
	{ "other-entry", other_entry, OTHER },
	{ 0 },
};
