//! The machine of a benchmark: enough to judge the figures, nothing that identifies the
//! machine.

use super::format::quantity;
use crate::Error;
use crate::launcher::Launcher;
use crate::mount::MountProperties;
use crate::scenario::Tool;
use crate::statistics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Number of writes that the flush probe times.
const PROBES: usize = 20;
/// Bytes of each write.
const PROBE_SIZE: usize = 4096;

/// The machine and the disk under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredHost {
    /// When the benchmark started, in seconds since 1970.
    pub started: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor architecture.
    pub machine: String,
    /// CPU model from /proc/cpuinfo.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Load averages over 1, 5 and 15 minutes at the start.
    pub load: String,
    /// The mount of the work directory.
    pub mount: Option<MountProperties>,
    /// Median time of 20 writes of 4 KiB with fdatasync, in milliseconds.
    pub flush_ms: f64,
    /// Versions of the programs involved.
    pub tools: BTreeMap<String, String>,
}

impl MeasuredHost {
    /// Reads the host and probes the disk under `dir`.
    ///
    /// # Errors
    /// `dir` cannot be written, or an interrupt arrives. A property of the machine that cannot
    /// be read is "unknown".
    pub fn read(dir: &Path, tools: &[Tool], launcher: &Launcher) -> Result<Self, Error> {
        let system = rustix::system::uname();
        Ok(Self {
            started: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            load: loads(),
            kernel: format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
            machine: system.machine().to_string_lossy().into_owned(),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(),
            mount: MountProperties::find(dir),
            flush_ms: flush_ms(dir)?,
            tools: versions(tools, launcher)?,
        })
    }

    /// Returns the lines of the report.
    pub(crate) fn text(&self) -> String {
        let mount = self.mount.as_ref().map_or_else(
            || "unknown".to_owned(),
            |m| format!("{} on {} ({})", m.kind, m.device, m.options),
        );
        let tools: Vec<String> =
            self.tools.iter().map(|(name, version)| named(name, version)).collect();
        format!(
            "host   {}, {}, {}, {} CPUs, {} MiB\n\
             disk   {mount}; write + fdatasync {}\n\
             load   {}\n\
             tools  {}\n",
            self.kernel,
            self.machine,
            self.cpu,
            self.cores,
            self.memory_mib,
            quantity(self.flush_ms * 1e6),
            self.load,
            tools.join(", ")
        )
    }
}

/// Returns the version with the program's name before it; most programs print their own name.
fn named(name: &str, version: &str) -> String {
    if version.starts_with(name) {
        return version.to_owned();
    }
    format!("{name} {version}")
}

fn loads() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |_| "unknown".to_owned(),
        |text| text.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
    )
}

fn memory_mib() -> u64 {
    field("/proc/meminfo", "MemTotal")
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib / 1024)
}

/// Returns the first value of a "key : value" line.
fn field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// Measures the median time of a write with fdatasync. The file grows, so each sync makes a
/// size durable as well as data, like the unpacking of a package.
fn flush_ms(dir: &Path) -> Result<f64, Error> {
    let mut file = tempfile::tempfile_in(dir).map_err(Error::io("make a file in", dir))?;
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let start = Instant::now();
        file.write_all(&[0x5a; PROBE_SIZE]).map_err(Error::io("write in", dir))?;
        rustix::fs::fdatasync(&file).map_err(Error::io("sync in", dir))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(statistics::median(&times).unwrap_or(0.0))
}

fn versions(tools: &[Tool], launcher: &Launcher) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    for tool in tools {
        let log = launcher.log(&format!("version-{}", tool.name));
        let version = match launcher.run(&tool.command, &log) {
            Err(error @ Error::Interrupted { .. }) => return Err(error),
            Ok(outcome) if outcome.status.success() => first_line(&log),
            Ok(_) | Err(_) => None,
        };
        found.insert(tool.name.clone(), version.unwrap_or_else(|| "absent".to_owned()));
    }
    Ok(found)
}

fn first_line(log: &Path) -> Option<String> {
    let bytes = std::fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().next().map(|line| line.trim().to_owned())
}
