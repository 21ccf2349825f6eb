# Makes a disk image as builders do: partitions, two file systems with the mounts of a chroot, a boot
# loader before the partitions, a lazy unmount of all, and a copy.
set -eu
truncate --size=104M image
disk=$(losetup --partscan --find --show image)
leave() {
	umount --lazy --recursive root 2>/dev/null || true
	losetup --detach "$disk" 2>/dev/null || true
}
trap leave EXIT
addpart "$disk" 1 2048 79872
addpart "$disk" 2 81920 131072
export E2FSPROGS_FAKE_TIME=1000000000
for number in 1 2; do
	id=11111111-2222-3333-4444-55555555555$number
	mkfs.ext4 -q -U $id -E hash_seed=$id,lazy_itable_init=0 "${disk}p$number"
done
mkdir root
mount "${disk}p2" root
mkdir root/boot root/bin root/dev root/proc
mount "${disk}p1" root/boot
mount --bind /dev root/dev
mount -t proc proc root/proc
cp /bin/busybox root/bin/
chroot root /bin/busybox sh -c 'echo data >/file'
sync root/file
sync --file-system root/boot
# grub-install writes core.img to a file, and then this file and boot.img to the disk.
mkdir root/boot/grub
seq 20000 | head --bytes=60K >root/boot/grub/core.img
dd if=root/boot/grub/core.img of="$disk" bs=512 seek=1 conv=notrunc,fsync status=none
seq 400 | head --bytes=440 | dd of="$disk" conv=notrunc,fsync status=none
# Another program has the disk open meanwhile. Without a sync, the kernel writes a disk out only at
# its last close.
exec 9<"$disk"
umount --lazy --recursive root 2>/dev/null || umount --lazy root
losetup --detach "$disk"
trap - EXIT
cp --sparse=always image copy
exec 9<&-
