//! No archive leads out of its target, and no damaged archive is accepted.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::{Hostile, everything, gnu_pack, packed, pax_file, refused, unpacked_in};

#[test]
fn an_archive_cut_at_any_record_is_refused_unless_it_is_whole() {
    let tree = everything();
    for archive in [gnu_pack(tree.path(), &["--format=gnu", "--sparse"]), packed(tree.path()).0] {
        let content = archive.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        // The padding of the last member must be there.
        let end = content.next_multiple_of(512);
        // The test is about reading, so most cuts are near the end; each unpacks the whole
        // tree.
        let cuts = (0..end).step_by(512 * 37).chain((end - 8192..end + 4096).step_by(512));
        for length in cuts.filter(|length| *length <= archive.len()) {
            let result = unpacked_in(tempfile::tempdir().unwrap().path(), &archive[..length]);
            // One block of zeros marks the end; POSIX requires a second one.
            assert_eq!(result.is_ok(), length >= end + 512, "{length} of {end}: {result:?}");
        }
        for length in [end - 1, end + 1, end + 511, 511, 513] {
            let result = unpacked_in(tempfile::tempdir().unwrap().path(), &archive[..length]);
            assert!(result.is_err(), "{length} of {end}");
        }
    }
}

#[test]
fn a_small_archive_cut_at_any_record_is_refused_unless_it_is_whole() {
    let mut members = Hostile::default();
    members.directory("d");
    members.file("d/file", &"content ".repeat(200));
    members.symlink("d/symlink", "file");
    members.link("link", "d/file");
    members.device("null");
    members.file("empty", "");
    let archive = [members.archive(), pax_file("later", &[("mtime", b"1.5")])].concat();
    let joined = members.archive().len();
    // Without the end between the archives, as `tar --concatenate` joins them.
    let archive = [&archive[..joined - 1024], &archive[joined..]].concat();
    let end = archive.len() - 1024;
    for length in (0..=archive.len()).step_by(512) {
        let result = unpacked_in(tempfile::tempdir().unwrap().path(), &archive[..length]);
        assert_eq!(result.is_ok(), length > end, "{length} of {end}: {result:?}");
    }
}

#[test]
fn an_archive_that_is_none_or_goes_on_behind_its_end_is_refused() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "a").unwrap();
    fs::File::open(tree.path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let (archive, _) = packed(tree.path());
    assert_eq!(refused(b""), "cannot unpack the archive: it is empty");
    assert_eq!(refused(&[b'x'; 2048]), "cannot unpack the archive: it is no tar");
    // An image of ext4 begins with zeros.
    let behind_zeros = [&[0; 1024][..], &[b'x'; 1024]].concat();
    assert_eq!(refused(&behind_zeros), "cannot unpack the archive: it is no tar");
    assert_eq!(refused(b"a text"), "cannot unpack the archive: it is no tar, or it is cut short");
    let both = [&archive[..], &archive[..]].concat();
    assert_eq!(refused(&both), "cannot unpack ./a: the archive continues after its end");
    let mut damaged = archive.clone();
    damaged[512 + 3] ^= 1;
    assert_eq!(refused(&damaged), "cannot unpack ./: the header behind this member is damaged");
}

#[test]
fn no_member_leads_out_of_the_target() {
    let mut hostile = Hostile::default();
    hostile.file("/canary", "absolute");
    assert_eq!(fs::read(hostile.unpacked().join("canary")).unwrap(), b"absolute");
    for name in ["../canary", "a/../../canary", "..", "a/..", "/../canary"] {
        let mut hostile = Hostile::default();
        hostile.file(name, "out");
        let why = "\"..\" in a name leads out of a directory";
        assert_eq!(hostile.refused(), format!("cannot unpack {name}: {why}"));
    }
    for target in ["..", "../", "/", "../..", "/../..", "/proc/self/root"] {
        let mut hostile = Hostile::default();
        hostile.symlink("out", target);
        hostile.file("out/canary", "through a link");
        hostile.any();
    }
    let mut hostile = Hostile::default();
    hostile.symlink("one", "..");
    hostile.symlink("one/two", "../..");
    hostile.symlink("out", "one/two/..");
    hostile.file("out/canary", "through links");
    hostile.any();
    // A directory whose path is cached, with a link in it that leads above it.
    let mut hostile = Hostile::default();
    hostile.file("d/e/file", "content");
    hostile.symlink("d/e/up", "../../x");
    hostile.directory("x");
    hostile.file("d/e/file", "once more");
    hostile.file("d/e/up/file", "beside d");
    assert_eq!(fs::read(hostile.unpacked().join("x/file")).unwrap(), b"beside d");
}

#[test]
fn a_link_is_followed_as_if_the_target_were_the_root() {
    let mut hostile = Hostile::default();
    hostile.directory("usr/lib");
    hostile.symlink("lib", "/usr/lib");
    hostile.file("lib/file", "content");
    hostile.file("lib/below/file", "deeper");
    let target = hostile.unpacked();
    assert_eq!(fs::read(target.join("usr/lib/file")).unwrap(), b"content");
    assert_eq!(fs::read(target.join("usr/lib/below/file")).unwrap(), b"deeper");
}

#[test]
fn a_member_never_writes_through_what_has_its_name() {
    let mut hostile = Hostile::default();
    let outside = hostile.canary().to_str().unwrap().to_owned();
    hostile.symlink("a", &outside);
    hostile.file("a", "not through the link");
    let target = hostile.unpacked();
    assert!(fs::symlink_metadata(target.join("a")).unwrap().is_file());

    let mut hostile = Hostile::default();
    hostile.file("a", "first");
    hostile.link("b", "a");
    hostile.file("b", "second");
    hostile.file("b", "third");
    let target = hostile.unpacked();
    assert_eq!(fs::read(target.join("a")).unwrap(), b"first");
    assert_eq!(fs::read(target.join("b")).unwrap(), b"third");
}

#[test]
fn a_member_replaces_any_other_but_a_directory_that_is_not_empty() {
    let mut hostile = Hostile::default();
    let outside = hostile.canary().to_str().unwrap().to_owned();
    hostile.symlink("a", &outside);
    hostile.directory("a");
    hostile.file("a/file", "in a directory");
    hostile.directory("d");
    hostile.device("d");
    let target = hostile.unpacked();
    assert_eq!(fs::read(target.join("a/file")).unwrap(), b"in a directory");
    assert_eq!(fs::metadata(target.join("d")).unwrap().rdev(), 0x103);

    let mut hostile = Hostile::default();
    hostile.file("d/file", "content");
    hostile.device("d");
    assert!(hostile.refused().starts_with("cannot replace d: Directory not empty"));
}

#[test]
fn hard_links_lead_nowhere_else_and_twice_to_the_same() {
    let mut hostile = Hostile::default();
    let outside = hostile.canary().to_str().unwrap().to_owned();
    hostile.link("a", &outside);
    assert!(hostile.refused().contains("No such file or directory"));
    let mut hostile = Hostile::default();
    hostile.link("a", "../canary");
    assert!(hostile.refused().contains("\"..\" in a name"));
    // The hard link is made to the symbolic link itself, and the file replaces that link.
    // Nothing is written through the link.
    let mut hostile = Hostile::default();
    let outside = hostile.canary().to_str().unwrap().to_owned();
    hostile.symlink("s", &outside);
    hostile.link("a", "s");
    hostile.file("a", "not outside");
    assert_eq!(fs::read(hostile.unpacked().join("a")).unwrap(), b"not outside");
    let mut hostile = Hostile::default();
    hostile.file("a", "content");
    for (link, to) in [("b", "a"), ("b", "a"), ("a", "b"), ("a", "a"), ("c", "./b"), ("c", "/a")] {
        hostile.link(link, to);
    }
    let target = hostile.unpacked();
    assert_eq!(fs::metadata(target.join("a")).unwrap().nlink(), 3);
    assert_eq!(fs::read(target.join("a")).unwrap(), b"content");
}

#[test]
fn attributes_of_a_replaced_directory_are_set_on_no_other_file() {
    let mut hostile = Hostile::default();
    hostile.directory_with_mode("a", 0o4777);
    hostile.directory_with_mode("b", 0o700);
    hostile.symlink("a", "b");
    let target = hostile.unpacked();
    assert_eq!(fs::metadata(target.join("b")).unwrap().permissions().mode() & 0o7777, 0o700);
    assert!(fs::symlink_metadata(target.join("a")).unwrap().is_symlink());
}

#[test]
fn attributes_that_would_direct_an_overlay_are_left_out_and_named() {
    let archive = pax_file("a", &[("SCHILY.xattr.trusted.overlay.redirect", b"/etc")]);
    let target = tempfile::tempdir().unwrap();
    let report = unpacked_in(target.path(), &archive).unwrap();
    assert_eq!(report.left_out.count, 1);
    assert!(report.left_out.named[0].1.contains("trusted.overlay.redirect"), "{report:?}");
    let names = rustix::fs::listxattr(target.path().join("a"), &mut [0_u8; 99][..]);
    assert_eq!(names, Ok(0));
}

#[test]
fn sizes_in_extended_headers_count_and_wrong_ones_are_refused() {
    let whole = pax_file("a", &[("size", b"4")]);
    let target = tempfile::tempdir().unwrap();
    unpacked_in(target.path(), &whole).unwrap();
    assert_eq!(fs::metadata(target.path().join("a")).unwrap().len(), 4);
    for (key, value) in [
        ("size", "-1"),
        ("size", "99999999999999999999"),
        ("uid", "4294967295"),
        ("mtime", "soon"),
        ("GNU.sparse.map", "1,2,x"),
    ] {
        let why = refused(&pax_file("a", &[(key, value.as_bytes())]));
        assert!(why.contains(&format!("wrong {key}")), "{why}");
    }
    let archive = pax_file("a", &[("size", b"9223372036854775807")]);
    assert!(refused(&archive).contains("cut short within"));
    let archive = pax_file("a", &[("GNU.sparse.major", b"2"), ("GNU.sparse.minor", b"0")]);
    assert!(refused(&archive).contains("map of its holes"));
}

#[test]
fn headers_for_all_members_take_a_limited_memory() {
    let global = global_header("comment");
    let archive = |count: usize| [global.repeat(count), pax_file("file", &[])].concat();
    unpacked_in(tempfile::tempdir().unwrap().path(), &archive(1)).unwrap();
    let why = "the header behind this member is too long";
    assert_eq!(refused(&archive(2)), format!("cannot unpack the archive: {why}"));
}

/// Attributes of directories are set at the end.
#[test]
fn attributes_of_directories_take_a_limited_memory() {
    let mut directory = tar::Header::new_ustar();
    directory.set_entry_type(tar::EntryType::Directory);
    directory.set_path("directory").unwrap();
    directory.set_size(0);
    directory.set_cksum();
    let global = global_header("SCHILY.xattr.user.large");
    let archive = [global, directory.as_bytes().repeat(13)].concat();
    let why = "the attributes of all directories are too long";
    assert_eq!(refused(&archive), format!("cannot unpack directory: {why}"));
}

/// Returns a header for all members of 40 MiB, with the record `key`.
fn global_header(key: &str) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::XGlobalHeader);
    let length = 40 << 20;
    header.set_size(length);
    header.set_cksum();
    let before = format!("{length} {key}=");
    let value = "a".repeat(length as usize - before.len() - 1);
    [header.as_bytes(), format!("{before}{value}\n").as_bytes()].concat()
}

#[test]
fn an_image_is_refused_with_a_hint() {
    let id = "0123456789abcdef".repeat(4);
    for (layer, index) in [
        (format!("{id}/layer.tar"), "manifest.json"),
        (format!("blobs/sha256/{id}"), "index.json"),
        (format!("{id}.tar"), "manifest.json"),
    ] {
        let mut image = Hostile::default();
        image.file(&layer, "");
        image.file(index, "[]");
        assert!(image.refused().contains("docker export"));
    }
    let mut root = Hostile::default();
    root.file("manifest.json", "[]");
    root.file("layer.tar", "");
    root.unpacked();
}

#[test]
fn no_bytes_lead_out_of_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let canary = dir.path().join("canary");
    fs::write(&canary, "alive").unwrap();
    let kept = fs::metadata(&canary).unwrap();
    let seeds = seeds(canary.to_str().unwrap());
    synconce_fuzz::target("archive", 3_000, |bytes| {
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let archive = mutated(&seeds, bytes);
        let _ = unpacked_in(&target, &archive);
        fs::remove_dir_all(&target).unwrap();
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["canary"]);
        let now = fs::metadata(&canary).unwrap();
        let seen = |is: &fs::Metadata| (is.ino(), is.len(), is.mode(), is.nlink(), is.ctime_nsec());
        assert_eq!(seen(&now), seen(&kept));
    });
}

/// Archives that almost lead out of the target.
fn seeds(outside: &str) -> Vec<Vec<u8>> {
    let mut first = Hostile::default();
    first.directory("d");
    first.symlink("d/s", outside);
    first.file("d/s", "four");
    first.link("h", "d/s");
    first.symlink("up", "..");
    first.file("up/canary", "four");
    let mut second = Hostile::default();
    second.symlink("s", "../canary");
    second.link("l", "s");
    second.file("l", "four");
    second.directory("a/b/c");
    second.symlink("a/b/up", "../../..");
    second.directory_with_mode("a/b/up/canary", 0o777);
    let records: &[(&str, &[u8])] = &[
        ("path", b"a/canary"),
        ("mtime", b"1.5"),
        ("SCHILY.xattr.user.a", b"value"),
        ("GNU.sparse.major", b"0"),
        ("GNU.sparse.size", b"9"),
        ("GNU.sparse.map", b"0,4"),
    ];
    vec![first.archive(), second.archive(), pax_file("a", records)]
}

/// Makes an archive with the changes in `bytes`. Checksums are corrected, because a wrong one
/// is refused at the first header.
fn mutated(seeds: &[Vec<u8>], bytes: &[u8]) -> Vec<u8> {
    let (which, edits) = bytes.split_first().unwrap_or((&0, &[]));
    let mut archive = seeds[usize::from(*which) % seeds.len()].clone();
    for edit in edits.chunks_exact(4).take(12) {
        // Mostly within headers, whose fields decide most.
        let block = usize::from(edit[0]) % (archive.len() / 512) * 512;
        let at = match edit[1] % 4 {
            0 => usize::from(edit[2]) % 100,
            1 => 100 + usize::from(edit[2]) % 60,
            2 => 156 + usize::from(edit[2]) % 101,
            _ => usize::from(edit[2]) * 2,
        };
        archive[block + at] = match edit[3] % 8 {
            0 => b'.',
            1 => b'/',
            2 => 0,
            3 => b'0' + edit[3] / 32,
            4 => archive[block + at].wrapping_add(1),
            _ => edit[3],
        };
    }
    for block in archive.chunks_exact_mut(512).filter(|block| block.starts_with_header()) {
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| match at {
                148..156 => 32,
                _ => u32::from(*byte),
            })
            .sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    archive
}

trait Block {
    fn starts_with_header(&self) -> bool;
}

impl Block for [u8] {
    fn starts_with_header(&self) -> bool {
        self.get(257..262) == Some(b"ustar")
    }
}
