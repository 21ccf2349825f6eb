//! The environment of the supervisor, as other processes see it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use synconce_sys::procfs::Stat;

/// Overwrites the environment with zeros (proc_pid_environ(5)). Servers of CI jobs end each process
/// that has a variable of the job, such as Jenkins' cookie. A daemon that is to outlive the job
/// drops that variable; the supervisor that serves the daemon must not be found by it either.
///
/// From here on this process has no variables. Without /proc nothing happens.
pub(crate) fn forget() {
    let Some(stat) = Stat::of_this_process() else { return };
    // env_start and env_end of proc_pid_stat(5), of which the kernel shows a process its own.
    let (Some(start), Some(end)) = (stat.field::<u64>(50), stat.field::<u64>(51)) else { return };
    let zeros = vec![0; end.saturating_sub(start) as usize];
    // Through the file: no code of this process may hold a reference to these bytes.
    let memory = File::options().write(true).open("/proc/self/mem");
    let _ = memory.and_then(|memory| memory.write_all_at(&zeros, start));
}
