# Installs the packages of $2 into the unpacked root, from the root's own cache.
mount -t proc proc root/proc
mount --bind /dev root/dev
# shellcheck disable=SC2086
exec chroot root /usr/bin/env DEBIAN_FRONTEND=noninteractive \
	apt-get -qq -y --no-download -o Dpkg::Use-Pty=0 install $2
