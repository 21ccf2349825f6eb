//! Runs one operation by hand, to measure it beside `cp` and `rm`:
//! `trees copy|auto|reflink|link|compare SOURCE TARGET`, `trees remove|fingerprint PATH`.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{File, create_dir};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use synconce_fs::{CopyMode, CopyOptions, compare, copy, fingerprint, remove, threads};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || arguments.next().ok_or("trees VERB PATH [PATH]");
    let (verb, path) = (next()?, PathBuf::from(next()?));
    let threads = match std::env::var("THREADS") {
        Ok(threads) => threads.parse()?,
        Err(_) => threads(),
    };
    let start = Instant::now();
    match verb.to_str() {
        Some("remove") => {
            let parent = File::open(path.parent().unwrap_or(Path::new("/")))?;
            let name: OsString = path.file_name().ok_or("no name")?.to_owned();
            let removed = remove(parent.as_fd(), &name, threads, &())?;
            for left in &removed.left {
                eprintln!("{left}");
            }
            eprintln!("{} entries", removed.entries);
        }
        Some(mode @ ("copy" | "auto" | "reflink")) => {
            let target = PathBuf::from(next()?);
            create_dir(&target)?;
            let (source, target) = (File::open(&path)?, File::open(&target)?);
            let mode = match mode {
                "copy" => CopyMode::Copy,
                "reflink" => CopyMode::Reflink,
                _ => CopyMode::Auto,
            };
            let options = CopyOptions { mode, threads, ..CopyOptions::default() };
            eprintln!("{:?}", copy(source.as_fd(), target.as_fd(), &options, &())?);
        }
        Some("fingerprint") => {
            let fingerprint = fingerprint(File::open(&path)?.as_fd(), threads, &())?;
            eprintln!("{} entries, {} bytes", fingerprint.entries, fingerprint.bytes);
        }
        Some("compare") => {
            let (a, b) = (File::open(&path)?, File::open(next()?)?);
            eprintln!("{} changes", compare(a.as_fd(), b.as_fd(), &())?.len());
        }
        _ => return Err("trees copy|auto|reflink|link|compare|remove|fingerprint".into()),
    }
    eprintln!("{:?}", start.elapsed());
    Ok(())
}
