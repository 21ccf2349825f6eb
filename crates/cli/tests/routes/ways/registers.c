/* A call whose arguments are rewritten leaves every register as the kernel would. */
#include "ways.h"
#include <sys/mman.h>

#ifdef __LP64__

struct frame {
	long number, arguments[6], saved[2];
};
#define FRAME(...) ((struct frame){ __VA_ARGS__, { 0 } })

#ifdef __x86_64__
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
#else /* aarch64 */
/* The same by `svc`. The first argument is where the result comes. The kernel shows a tracer
 * another x7 than that of the caller. */
static long enter(struct frame *frame)
{
	register long x0 __asm__("x0") = frame->arguments[0];
	register long x1 __asm__("x1") = frame->arguments[1];
	register long x2 __asm__("x2") = frame->arguments[2];
	register long x3 __asm__("x3") = frame->arguments[3];
	register long x4 __asm__("x4") = frame->arguments[4];
	register long x5 __asm__("x5") = frame->arguments[5];
	register long x7 __asm__("x7") = 0x1212121212121212;
	register long x8 __asm__("x8") = frame->number;
	register long x19 __asm__("x19") = 0x1515151515151515;
	__asm__ volatile("svc 0"
			 : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3), "+r"(x4), "+r"(x5), "+r"(x7),
			   "+r"(x8), "+r"(x19)
			 :
			 : "memory");
	frame->arguments[1] = x1;
	frame->arguments[2] = x2;
	frame->arguments[3] = x3;
	frame->arguments[4] = x4;
	frame->arguments[5] = x5;
	frame->saved[0] = x7;
	frame->saved[1] = x19;
	return x8 == frame->number ? x0 : -1000;
}
#endif

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
	check("openat fails", FRAME(SYS_openat, { AT_FDCWD, (long)"b", flags, 1, 2, 3 }));
#ifdef SYS_open
	check("open", FRAME(SYS_open, { (long)"a", flags, 11, 1, 2, 3 }));
	check("open fails", FRAME(SYS_open, { (long)"b", flags, 11, 1, 2, 3 }));
#endif
	check("pwritev2",
	      FRAME(SYS_pwritev2, { fd, (long)&part, 1, 0, 9, 0x100000000 | RWF_DSYNC_ }));
	check("msync", FRAME(SYS_msync, { (long)area, page, MS_SYNC | MS_INVALIDATE, 1, 2 }));
	check("fsync", FRAME(SYS_fsync, { fd, 1, 2, 3, 4, 5 }));
}

#endif

#ifdef __x86_64__
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

#elif defined(__aarch64__)
/* There is no other entry. */
static void other_entry(void)
{
	make_file("a", "content");
	int fd = CALL(syscall(SYS_openat, AT_FDCWD, "a", O_RDWR | O_SYNC));
	CALL(syscall(SYS_fsync, fd));
}

#define KEPT "openat 1 0 0,pwritev2 1 0 0,msync 1 0 0,fsync 1 0 0"
#define OTHER "openat 1 0 0,fsync 1 0 0"

#else /* 32 bits */

#ifdef __arm__
static void kept(void)
{
	make_file("a", "content");
	register long r0 __asm__("r0") = (long)"a";
	register long r1 __asm__("r1") = O_RDWR | O_SYNC;
	register long r2 __asm__("r2") = 7;
	register long r3 __asm__("r3") = 8;
	register long r4 __asm__("r4") = 9;
	register long r12 __asm__("r12") = 10;
	/* r7 has the number; compilers keep other values there. */
	__asm__ volatile("push {r7}\n\tmov r7, %[number]\n\tsvc 0\n\tpop {r7}"
			 : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r4), "+r"(r12)
			 : [number] "i"(SYS_open)
			 : "memory");
	long value = r0;
	int kept = r1 == (O_RDWR | O_SYNC) && r2 == 7 && r3 == 8 && r4 == 9 && r12 == 10;
	say("open = %ld, registers %s", value, kept ? "kept" : "changed");
	disk_flags(value);
}
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
#endif

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
