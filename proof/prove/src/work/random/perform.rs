//! Runs a batch of programs: the hidden command `prove perform`, whose syncs are held and
//! which is cut.

use super::operation::{Operation, OperationVerb, TARGET};
use super::{Programs, directory, filler, text};
use crate::Result;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, fallocate,
    fchmod, fdatasync, fsetxattr, fsync, ftruncate, linkat, mkdirat, openat, renameat,
    renameat_with, seek, symlinkat, sync, syncfs, unlinkat,
};
use rustix::io::{Errno, write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run the programs of a batch in TREE, each in its own directory
#[derive(Debug, clap::Args)]
pub(crate) struct Perform {
    #[command(flatten)]
    programs: Programs,
    /// Print the programs instead of running them
    #[arg(long)]
    show: bool,
    /// Work in this directory, which `prove` has prepared
    #[arg(value_name = "TREE", default_value = ".")]
    tree: PathBuf,
}

/// Minimum duration of a batch. In a shorter batch the journal would never be committed.
const SPREAD: Duration = Duration::from_millis(700);

/// Errors that a program may get, because its names come and go.
const ORDINARY: [Errno; 7] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::LOOP,
    Errno::INVAL,
];

/// Runs or prints the programs that `arguments` select.
pub(crate) fn perform(arguments: &Perform) -> Result<()> {
    let programs = arguments.programs.here();
    if arguments.show {
        for (index, program) in programs.iter().enumerate() {
            println!("{} {}", directory(index), text(program));
        }
        return Ok(());
    }
    let tree = open_directory(CWD, &arguments.tree)?;
    // The first held call comes before the first change.
    fsync(&tree)?;
    let pause = SPREAD / u32::try_from(programs.len().max(1))?;
    for (index, program) in programs.iter().enumerate() {
        let own = open_directory(tree.as_fd(), Path::new(&directory(index)))?;
        for (step, operation) in (1..).zip(program) {
            match operation.perform(own.as_fd(), step) {
                Err(errno) if !ORDINARY.contains(&errno) => {
                    let at = format!("{}: {operation}, step {step}", directory(index));
                    return Err(format!("{at} of [{}]: {errno}", text(program)).into());
                }
                _ => {}
            }
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

impl Operation {
    /// Performs the operation below `own`; what is written identifies the `step`.
    fn perform(&self, own: BorrowedFd<'_>, step: usize) -> rustix::io::Result<()> {
        let Self { verb, path, other } = *self;
        let mode = Mode::from_raw_mode(0o644);
        let file = |flags| openat(own, path, flags | OFlags::CLOEXEC, mode);
        let writable = || file(OFlags::WRONLY);
        let fresh = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        match verb {
            OperationVerb::Put => fill(&file(fresh)?, step, 5000),
            OperationVerb::PutSynced => fill(&file(fresh | OFlags::DSYNC)?, step, 5000),
            OperationVerb::Append => fill(&file(OFlags::WRONLY | OFlags::APPEND)?, step, 3000),
            OperationVerb::Overwrite => fill_at(&writable()?, step, 1000, 4000),
            OperationVerb::WriteBeyond => fill_at(&writable()?, step, 20_000, 3000),
            OperationVerb::Shrink => ftruncate(writable()?, 100),
            OperationVerb::Grow => ftruncate(writable()?, 30_000),
            OperationVerb::Allocate => {
                fallocate(writable()?, FallocateFlags::empty(), 2000, 40_000)
            }
            OperationVerb::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(writable()?, flags, 1000, 8000)
            }
            OperationVerb::Chmod => fchmod(file(OFlags::RDONLY)?, Mode::from_raw_mode(0o600)),
            OperationVerb::SetAttribute => {
                let value = format!("step {step}");
                let file = file(OFlags::RDONLY)?;
                fsetxattr(file, c"user.step", value.as_bytes(), XattrFlags::empty())
            }
            OperationVerb::Symlink => symlinkat(TARGET, own, path),
            OperationVerb::Unlink => unlinkat(own, path, AtFlags::empty()),
            OperationVerb::Fsync => fsync(file(OFlags::RDONLY)?),
            OperationVerb::Fdatasync => fdatasync(file(OFlags::RDONLY)?),
            OperationVerb::Link => linkat(own, path, own, other, AtFlags::empty()),
            OperationVerb::Rename => renameat(own, path, own, other),
            OperationVerb::Exchange => renameat_with(own, path, own, other, RenameFlags::EXCHANGE),
            OperationVerb::Mkdir => mkdirat(own, path, Mode::from_raw_mode(0o755)),
            OperationVerb::Rmdir => unlinkat(own, path, AtFlags::REMOVEDIR),
            OperationVerb::FsyncDirectory => fsync(open_directory(own, Path::new(path))?),
            OperationVerb::Sync => {
                sync();
                Ok(())
            }
            OperationVerb::Syncfs => syncfs(own),
        }
    }
}

fn open_directory(at: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn fill(file: &OwnedFd, step: usize, length: usize) -> rustix::io::Result<()> {
    let content = filler(step, length);
    let mut rest = &content[..];
    while !rest.is_empty() {
        rest = &rest[write(file, rest)?..];
    }
    Ok(())
}

fn fill_at(file: &OwnedFd, step: usize, offset: u64, length: usize) -> rustix::io::Result<()> {
    seek(file, SeekFrom::Start(offset))?;
    fill(file, step, length)
}
