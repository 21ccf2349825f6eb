//! Processes, as /proc shows them.

use std::fs;
use std::io::{self, Read};
use std::str::FromStr;

/// Returns the ids of the processes that /proc shows.
pub fn pids() -> impl Iterator<Item = u32> {
    ids_in("/proc")
}

/// Returns the ids of the threads of `process`.
pub fn threads(process: u32) -> impl Iterator<Item = u32> {
    ids_in(&format!("/proc/{process}/task"))
}

/// Returns the name of `process` (`/proc/PID/comm`). A process can set any bytes, also none
/// (prctl(2), PR_SET_NAME). Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// `ENOENT` or `ESRCH` if there is no such process, and those of open(2) and read(2).
pub fn process_name(process: u32) -> io::Result<String> {
    let name = read(&format!("/proc/{process}/comm"))?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Returns the words of `file` of `process`: `cmdline` or `environ` (proc(5)). The last one is
/// empty.
///
/// # Errors
/// Those of read(2): `EACCES` if the caller may not examine the process.
pub fn words(process: u32, file: &str) -> io::Result<Vec<String>> {
    let bytes = fs::read(format!("/proc/{process}/{file}"))?;
    let words = bytes.split(|byte| *byte == 0);
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Returns the value of `field`, such as `Tgid:`, in `/proc/ID/status` (proc_pid_status(5)) of a
/// process or thread; `None` if there is no such process or field. The name of the process cannot
/// pass for a field, because the kernel escapes its line breaks.
pub fn status_field(id: u32, field: &str) -> Option<String> {
    let status = read(&format!("/proc/{id}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    Some(status.lines().find_map(|line| line.strip_prefix(field))?.trim().to_owned())
}

/// Reads a file of /proc that has one record, usually with three system calls. `fs::read` needs
/// eight or more: it asks for the size, which the file does not have, and reads small pieces.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = match file.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        text.extend_from_slice(&piece[..count]);
        // The kernel writes the whole record at the first read, so a short read is the end
        // (seq_file).
        if count < piece.len() {
            return Ok(text);
        }
    }
}

fn ids_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The text of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug)]
pub struct Stat(String);

impl Stat {
    /// Reads the file of the process or thread `id`. For a thread, the kernel shows the thread's
    /// name, state and start, and the processor times of the whole process.
    pub fn read(id: u32) -> Option<Self> {
        Self::at(&id.to_string())
    }

    /// Reads the file of the calling process, also if /proc belongs to another pid namespace.
    pub fn of_this_process() -> Option<Self> {
        Self::at("self")
    }

    /// Reads the file of the thread `thread` of `process`, all of which is about that thread.
    pub fn of_thread(process: u32, thread: u32) -> Option<Self> {
        Self::at(&format!("{process}/task/{thread}"))
    }

    fn at(place: &str) -> Option<Self> {
        Some(Self::from(&read(&format!("/proc/{place}/stat")).ok()?[..]))
    }

    /// Returns the name, which may contain any character.
    pub fn name(&self) -> Option<&str> {
        self.0.rsplit_once(") ")?.0.split_once('(').map(|(_, name)| name)
    }

    /// Returns the field with this number in proc_pid_stat(5). The first field after the name is 3.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        let (_, fields) = self.0.rsplit_once(") ")?;
        fields.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }

    /// Returns the state, such as `S`.
    pub fn state(&self) -> Option<char> {
        self.field(3)
    }

    /// Returns the id of the parent.
    pub fn parent(&self) -> Option<u32> {
        self.field(4)
    }

    /// Returns when the process or thread began, in clock ticks since the boot. An id is reused,
    /// but not with the same time.
    pub fn began(&self) -> Option<u64> {
        self.field(22)
    }
}

impl From<&[u8]> for Stat {
    fn from(text: &[u8]) -> Self {
        // A name that is not UTF-8 must not hide the process.
        Self(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = Stat::from(&b"7 (a) b (c) S 3 7 7 0 -1 0 9 8 1 0 31 32 33 34 20 0 1 0 55 6"[..]);
        assert_eq!(stat.name(), Some("a) b (c"));
        assert_eq!((stat.state(), stat.parent(), stat.began()), (Some('S'), Some(3), Some(55)));
        assert_eq!(stat.field::<u64>(14), Some(31));
        assert_eq!(Stat::from(&b"7 (a) S"[..]).parent(), None);
    }
}
