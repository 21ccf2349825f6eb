/* Calls that pass and are counted: ioctl and quotactl. BLKFLSBUF and FIFREEZE have a
 * test of their own, with a device and a mount. */
#include "ways.h"
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/quota.h>

#define BTRFS_SYNC 0x9408
#define BLOCK_FLUSH 0x1261
#define FREEZE 0xc0045877
#define THAW 0xc0045878

static void quota(void)
{
	/* An invalid kind: without a device, a valid Q_SYNC would sync every file system. */
	CALL(syscall(SYS_quotactl, QCMD(Q_SYNC, 255), NULL, 0, NULL));
	CALL(syscall(SYS_quotactl, QCMD(Q_SYNC, GRPQUOTA), "/dev/null", 0, NULL));
	CALL(syscall(SYS_quotactl, QCMD(Q_GETFMT, USRQUOTA), "/dev/null", 0, NULL));
}

static void control(void)
{
	int fd = file("a");
	CALL(ioctl(fd, BTRFS_SYNC));
	CALL(ioctl(fd, BLOCK_FLUSH));
	CALL(ioctl(-1, BLOCK_FLUSH));
	int available = 0;
	CALL(ioctl(fd, FIONREAD, &available));
}

/* umount2 fails for a path that is not a mount point, and has no effect. */
static void unmounting(void)
{
	NEED(mkdir("d", 0755) == 0);
	make_file("a", "content");
	CALL(umount2("d", 0));
	CALL(umount2("a", 0));
	CALL(umount2("absent", 0));
	CALL(umount2("", 0));
	CALL(umount2((char *)1, 0));
	CALL(umount2("d", 1 << 20));
}

/* DEVICE and MOUNT are in the environment. */
static void device(void)
{
	const char *device = getenv("DEVICE"), *mount = getenv("MOUNT");
	if (!device || !mount) {
		say("no device");
		return;
	}
	int fd = open(device, O_RDONLY), root = open(mount, O_RDONLY | O_DIRECTORY);
	NEED(fd >= 0 && root >= 0);
	CALL(ioctl(fd, BLOCK_FLUSH, 0));
	CALL(ioctl(root, FREEZE, 0));
	CALL(ioctl(root, THAW, 0));
}

const struct way device_ways[] = {
	{ "quota", quota, "quotactl 0 2 0" },
	{ "ioctl", control, "ioctl 0 3 0" },
	{ "umount", unmounting, "" },
	{ "device", device, "ioctl * * 0" },
	{ 0 },
};
