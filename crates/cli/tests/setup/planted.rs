//! Faults that are planted in the files of a system.

use std::fs;
use std::path::Path;

/// What is done to a file.
pub enum FileFault {
    Gone,
    Written(&'static str),
    Replaced(&'static str, &'static str),
}

/// A name, a file below the root, what is done to it, the exit code of a check, and a part of what
/// the check prints.
pub type FaultRow = (&'static str, &'static str, FileFault, i32, &'static str);

/// Plants `fault` in `file`, calls `check`, and puts the file back with its times.
pub fn with_fault(file: &Path, fault: &FileFault, check: impl FnOnce()) {
    let aside = file.with_file_name("aside");
    if file.symlink_metadata().is_ok() {
        fs::rename(file, &aside).unwrap();
    }
    match fault {
        FileFault::Gone => {}
        FileFault::Written(text) => {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        FileFault::Replaced(from, to) => {
            let text = fs::read_to_string(&aside).unwrap();
            assert!(text.contains(from), "{}: {text}", file.display());
            fs::write(file, text.replace(from, to)).unwrap();
        }
    }
    check();
    let _ = fs::remove_file(file);
    if aside.symlink_metadata().is_ok() {
        fs::rename(&aside, file).unwrap();
    }
}
