//! Roots that trees are made of.

use crate::site::limit;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::process;

/// Names of busybox in a small root.
const TOOLS: &str = "sh cp sed touch truncate rm mv ln mkdir rmdir cat echo chmod chown find stat id \
                     ls sleep kill true false tar ps head dd wc sync tr mount env pwd test setsid \
                     readlink sort mknod tail cmp tee grep seq rev yes";

/// Makes a root with a shell and little else: `bin`, mount points, and `data` with files of
/// every kind that is written to.
pub fn small(place: &Place, name: &str) -> PathBuf {
    let root = place.path(name);
    for directory in ["bin", "proc", "dev", "sys", "run", "tmp", "etc", "root", "mnt", "data"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for tool in TOOLS.split_whitespace() {
        symlink("busybox", root.join("bin").join(tool)).unwrap();
    }
    let etc = [("passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")];
    for (file, text) in etc.iter().chain(&[("group", "root:x:0:\nuser:x:1000:\n")]) {
        fs::write(root.join("etc").join(file), text).unwrap();
    }
    for file in ["resolv.conf", "hosts", "motd"] {
        fs::write(root.join("etc").join(file), "# of the tree\n").unwrap();
    }
    let data = root.join("data");
    for directory in ["far", "directory", "empty"] {
        fs::create_dir(data.join(directory)).unwrap();
    }
    for file in ["file", "hard", "attributes", "directory/inner"] {
        fs::write(data.join(file), "original".repeat(8191) + "at last\n").unwrap();
    }
    fs::write(data.join("other"), "another\n".repeat(8192)).unwrap();
    fs::hard_link(data.join("hard"), data.join("far/hard")).unwrap();
    symlink("file", data.join("symlink")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(data.join("attributes"), "user.old", b"value", flags).unwrap();
    root
}

/// Prepares a small root for the host's `/usr`, which is bound into it.
pub fn link_to_usr(root: &Path) {
    fs::create_dir(root.join("usr")).unwrap();
    for library in ["lib", "lib64"] {
        symlink(format!("usr/{library}"), root.join(library)).unwrap();
    }
}

/// Compiles the program of all ways to write, for any root.
pub fn ways(place: &Place) -> PathBuf {
    let program = place.path("ways");
    let source = place.write("ways.c", include_str!("ways.c"));
    let mut compiler = place.command("cc");
    compiler.args(["-std=gnu11", "-O1", "-static", "-o"]).arg(&program).arg(source);
    let built = finish(&mut compiler);
    assert!(built.status.success(), "{}", built.stderr);
    program
}

/// Unpacks `tar` into the new directory `to`.
pub fn unpack(tar: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut command = Command::new("tar");
    command.args(["-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-f"]).arg(tar);
    let unpacked = process::run(command.arg("-C").arg(to), limit()).unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
}

/// Makes a package `name` of `version` with some files by Debian's own tool, and an apt
/// repository of this package alone below `repository`.
pub fn package(place: &Place, repository: &Path, name: &str, version: &str) {
    let script = r#"
mkdir -p "$1"; tree=$(mktemp -d); repository=$1 name=$2 version=$3
mkdir -p "$tree/DEBIAN" "$tree/usr/share/$name" "$tree/etc"
printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@invalid>\nDescription: made\n' \
    "$name" "$version" >"$tree/DEBIAN/control"
printf '/etc/%s.conf\n' "$name" >"$tree/DEBIAN/conffiles"
printf '#!/bin/sh\nset -e\necho "$1 $2" >>/var/log/%s\n' "$name" >"$tree/DEBIAN/postinst"
chmod 755 "$tree/DEBIAN/postinst"
echo "$version" >"$tree/etc/$name.conf"
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "$version $n" >"$tree/usr/share/$name/$n"
done
ln "$tree/usr/share/$name/1" "$tree/usr/share/$name/linked"
case $version in
1) mkdir "$tree/usr/share/$name/goes"; echo goes >"$tree/usr/share/$name/goes/file" ;;
*) mkdir "$tree/usr/share/$name/comes"; echo comes >"$tree/usr/share/$name/comes/file" ;;
esac
chmod -R u=rwX,go=rX "$tree"
deb=$repository/${name}_${version}_all.deb
dpkg-deb --root-owner-group --build "$tree" "$deb" >/dev/null
cd "$repository"
file=$(basename "$deb")
{ dpkg-deb --field "$file"; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n' "$file" \
    "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d ' ' -f 1)"; } >Packages
rm -rf "$tree"
"#;
    let mut command = place.command("sh");
    command.args(["-ec", script, "sh"]).arg(repository).args([name, version]);
    let made = finish(&mut command);
    assert!(made.status.success(), "{made:?}");
}
