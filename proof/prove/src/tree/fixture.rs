//! The tree that is imported, and the edits of its clones. The hidden command `prove edit`
//! makes an edit in a clone; the same edit in a plain directory is what the clone is compared
//! with.

use crate::Result;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of directories that edits own; edits 0 to 9 own different ones.
pub(super) const EDITS: u64 = 10;
const FILES: usize = 24;
/// Where the program `prove` is bound in a clone.
pub(super) const PROGRAM: &str = "/bin/edit";

/// Make one of the known edits in a tree
#[derive(Debug, clap::Args)]
pub(crate) struct Edit {
    /// Make edit N
    #[arg(long, value_name = "N")]
    number: u64,
    /// Take at least MILLIS milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    millis: u64,
    /// Edit the tree with this root
    #[arg(value_name = "TREE")]
    tree: PathBuf,
}

pub(crate) fn perform(arguments: &Edit) -> Result<()> {
    edit(&arguments.tree, arguments.number, Duration::from_millis(arguments.millis))
}

/// Returns the command line that makes edit `number` in a clone.
pub(super) fn words(number: u64, millis: u64) -> Vec<String> {
    let number = number.to_string();
    let millis = millis.to_string();
    [PROGRAM, "edit", "--number", &number, "--millis", &millis, "/"].map(str::to_owned).to_vec()
}

/// Makes the tree that is imported: about 300 entries of every kind.
pub(super) fn make(root: &Path) -> Result<()> {
    for name in ["bin", "dev", "etc", "proc", "sys", "links/deep", "odd"] {
        fs::create_dir_all(root.join(name))?;
    }
    // The mount point of the program exists, so that a run need not create it.
    fs::write(root.join(PROGRAM.trim_start_matches('/')), "")?;
    for number in 0..EDITS {
        let own = root.join(own(number));
        fs::create_dir_all(own.join("below"))?;
        for file in 0..FILES {
            fs::write(own.join(format!("file{file}")), filler(number, file, 60 + 331 * file))?;
        }
        fs::write(own.join("below/kept"), filler(number, FILES, 9000))?;
    }
    fs::write(root.join("links/one"), filler(99, 0, 5000))?;
    fs::hard_link(root.join("links/one"), root.join("links/two"))?;
    fs::hard_link(root.join("links/one"), root.join("links/deep/three"))?;
    for number in 0..EDITS {
        let one = root.join(format!("links/one{number}"));
        fs::write(&one, filler(98, 0, 3000))?;
        fs::hard_link(&one, root.join(format!("links/deep/two{number}")))?;
    }
    let setuid = root.join("bin/setuid");
    fs::write(&setuid, filler(97, 0, 700))?;
    fs::set_permissions(&setuid, Permissions::from_mode(0o4755))?;
    setxattr(&setuid, "user.kind", b"setuid", XattrFlags::empty())?;
    setxattr(root.join("links"), "user.kind", b"directory", XattrFlags::empty())?;
    fifo(&root.join("odd/fifo"))?;
    symlink("../links/one", root.join("odd/link"))?;
    symlink("nowhere", root.join("odd/dangling"))?;
    std::os::unix::fs::chown(root.join("odd/link"), Some(0), Some(7))?;
    fs::write(root.join("odd/sparse"), "")?;
    File::options().write(true).open(root.join("odd/sparse"))?.set_len(1 << 20)?;
    Ok(())
}

/// Makes edit `number` in the tree at `root`, and takes at least `spread`.
pub(super) fn edit(root: &Path, number: u64, spread: Duration) -> Result<()> {
    let steps: [fn(&Path, u64) -> Result<()>; 5] = [write, links, attributes, names, last];
    for step in steps {
        step(root, number)?;
        std::thread::sleep(spread / u32::try_from(steps.len())?);
    }
    Ok(())
}

fn own(number: u64) -> String {
    format!("own{}", number % EDITS)
}

/// Writes new files; overwrites, truncates and removes some of them.
fn write(root: &Path, number: u64) -> Result<()> {
    let own = root.join(own(number));
    for file in 0..6 {
        let mut new = File::create(own.join(format!("new{file}")))?;
        new.write_all(&filler(100 + number, file, 4000 + 3777 * file))?;
        // The sync is held, so the file is no more durable than any other.
        new.sync_all()?;
    }
    let mut in_place = File::options().write(true).open(own.join("file9"))?;
    in_place.seek(SeekFrom::Start(500))?;
    in_place.write_all(&filler(200 + number, 0, 1000))?;
    File::options().write(true).open(own.join("file10"))?.set_len(77)?;
    for file in 11..15 {
        fs::remove_file(own.join(format!("file{file}")))?;
    }
    Ok(())
}

/// Writes to a hard link, which must stay one.
fn links(root: &Path, number: u64) -> Result<()> {
    for name in ["links/deep/three".to_owned(), format!("links/one{}", number % EDITS)] {
        let mut file = File::options().append(true).open(root.join(name))?;
        file.write_all(&filler(300 + number, 0, 90))?;
    }
    fs::hard_link(root.join(own(number)).join("file1"), root.join(format!("links/new{number}")))?;
    Ok(())
}

fn attributes(root: &Path, number: u64) -> Result<()> {
    let own = root.join(own(number));
    let file = own.join("file2");
    fs::set_permissions(&file, Permissions::from_mode(0o2750))?;
    std::os::unix::fs::chown(own.join("file3"), Some(1000), Some(7))?;
    setxattr(&file, "user.edit", number.to_string().as_bytes(), XattrFlags::empty())?;
    setxattr(&own, "user.edit", b"own", XattrFlags::empty())?;
    fifo(&own.join("fifo"))?;
    symlink(format!("file{number}"), own.join("link"))?;
    Ok(())
}

/// Renames a directory of the base, and removes another one and creates it anew.
fn names(root: &Path, number: u64) -> Result<()> {
    let own = root.join(own(number));
    fs::rename(own.join("below"), own.join("moved"))?;
    fs::write(own.join("moved/added"), filler(400 + number, 0, 3000))?;
    fs::create_dir(own.join("below"))?;
    fs::rename(own.join("file4"), own.join("below/file4"))?;
    fs::rename(own.join("file5"), own.join("file6"))?;
    Ok(())
}

fn last(root: &Path, number: u64) -> Result<()> {
    let log = File::options().append(true).create(true).open(root.join("etc/log"));
    let mut log = log?;
    writeln!(log, "edit {number}")?;
    log.sync_all()?;
    Ok(())
}

pub(super) fn fifo(path: &Path) -> Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o640), 0)?)
}

/// Returns text in which every block differs from every other.
pub(super) fn filler(by: u64, file: usize, length: usize) -> Vec<u8> {
    let lines = (0..).map(|line| format!("by {by} file {file} line {line}\n"));
    let mut text = Vec::with_capacity(length + 40);
    for line in lines {
        if text.len() >= length {
            break;
        }
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(length);
    text
}

/// Copies what [`make`] and [`edit`] create.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = std::process::Command::new("cp");
    command.arg("-a").arg("--").arg(from).arg(to);
    if command.status()?.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_testkit::manifest::{Manifest, diff};

    #[test]
    fn edits_differ_from_each_other_and_can_follow_each_other() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("base");
        make(&base).unwrap();
        let all = Manifest::read(&base).unwrap();
        assert!(all.entries.len() > 290, "{} entries", all.entries.len());
        let edited = place.path().join("edited");
        copy(&base, &edited).unwrap();
        let mut before = Manifest::read(&edited).unwrap();
        for number in 0..EDITS {
            edit(&edited, number, Duration::ZERO).unwrap();
            let after = Manifest::read(&edited).unwrap();
            assert!(diff(&before, &after).len() > 20, "{number}");
            before = after;
        }
    }
}
