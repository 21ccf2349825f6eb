//! Existing kinds of disks that the rig can imitate.
//!
//! A preset mainly imitates the time of a flush: the rig has one queue, no FUA and an overhead
//! of some 0.1 ms per request. **An fsync of new data is two flushes on the rig**
//! ([`Latency`]), while a disk with FUA does one flush and one durable write. If a source
//! gives the time of an fsync, the flush takes half of it. Figures come from data sheets and
//! public measurements, each named; our own guesses are marked as guesses.

use std::fmt;
use std::time::Duration;

use super::{Latency, Limits};

/// A kind of disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// The kind of disk that the preset imitates.
    pub title: &'static str,
    /// The time of a flush; half that of an fsync of new data.
    pub latency: Latency,
    /// The speed limits.
    pub limits: Limits,
    /// The source of each figure.
    pub figures: &'static [Figure],
}

/// A figure of a preset and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figure {
    /// The figure as text.
    pub value: &'static str,
    /// The publisher and the place of the source.
    pub source: &'static str,
}

const fn figure(value: &'static str, source: &'static str) -> Figure {
    Figure { value, source }
}

const SEED: u64 = 1;

const CONSUMER_SSD: Preset = Preset {
    name: "consumer-ssd",
    title: "SATA SSD of a PC, without power-loss protection",
    latency: Latency::log_normal(Duration::from_micros(1_600), Duration::from_micros(6_400), SEED),
    limits: Limits {
        read_bytes: Some(550_000_000),
        written_bytes: Some(520_000_000),
        reads: Some(98_000),
        writes: Some(90_000),
        seek: Duration::ZERO,
    },
    figures: &[
        figure(
            "flush, median 1.6 ms",
            "measured on NVMe disks of the kind, no public figure for SATA found: Samsung 990 PRO, fdatasync \
             1.64 ms (tanelpoder.com/posts/using-pg-test-fsync-for-testing-low-latency-writes, xfs); \
             Samsung 980, 574 fsynced 4 KiB writes a second, 1.7 ms each (cdn.igene.tw/en/choosing-ceph-ssd)",
        ),
        figure("flush, 99th percentile 6.4 ms", "our guess: four times the median"),
        figure(
            "550 and 520 MB/s, 98,000 reads and 90,000 writes a second",
            "Samsung's figures for the 860 EVO 500 GB, as in \
             techplayboy.com/48896/samsung-ssd-860-evo-solid-state-drive-review",
        ),
    ],
};

const HDD_7200: Preset = Preset {
    name: "hdd-7200",
    title: "hard disk of 7,200 rpm with its write cache on",
    latency: Latency::log_normal(
        Duration::from_micros(12_360),
        Duration::from_micros(19_330),
        SEED,
    ),
    limits: Limits {
        read_bytes: Some(200_000_000),
        written_bytes: Some(200_000_000),
        reads: None,
        writes: None,
        seek: Duration::from_micros(11_560),
    },
    figures: &[
        figure(
            "flush, median 12.4 ms, 99th percentile 19.3 ms",
            "reckoned as one write: average seek 8.2 ms (max. 11.0) plus 4.16 ms, half a revolution (a whole \
             one 8.33), Western Digital Ultrastar DC HC310 specification, tables 5 and 7 \
             (manualshive.com/en/manual/western-digital/ultrastar-dc-hc310/961649?page=23)",
        ),
        figure("seek of a read 11.6 ms", "7.4 + 4.16 ms, the same tables"),
        figure("200 MB/s", "our guess, of the order of current drives' outer tracks"),
    ],
};

const CLOUD_VOLUME: Preset = Preset {
    name: "cloud-volume",
    title: "network volume of a cloud at its base rate (Amazon EBS gp3)",
    latency: Latency::log_normal(Duration::from_micros(560), Duration::from_micros(2_600), SEED),
    limits: Limits {
        read_bytes: Some(125 << 20),
        written_bytes: Some(125 << 20),
        reads: Some(3_000),
        writes: Some(3_000),
        seek: Duration::ZERO,
    },
    figures: &[
        figure(
            "flush, median 0.56 ms",
            "the volume has no cache to flush; each of an fsync's writes takes that long: median of 4 KiB \
             writes on EBS (github.com/buildkite/elastic-ci-stack-for-aws/pull/682)",
        ),
        figure(
            "flush, 99th percentile 2.6 ms",
            "our guess; P99 of an etcd-like fdatasync on a machine that is not named \
             (github.com/replicatedhq/troubleshoot/pull/323)",
        ),
        figure(
            "125 MiB/s, 3,000 requests a second",
            "Amazon's base rate of gp3, as in \
             lethang7794.github.io/aws-sa-associate-saac03/0910-EBS-volume-types.html; reads and writes \
             share it there, here each has its own, and bursts are not imitated",
        ),
    ],
};

const NVME_PLP: Preset = Preset {
    name: "nvme-plp",
    title: "NVMe SSD of a data centre, with power-loss protection",
    latency: Latency::NONE,
    limits: Limits::NONE,
    figures: &[figure(
        "flush 0",
        "the disk's cache survives a power cut, so that a flush does nothing; 12 to 58 us an fsync on such \
         disks (smalldatum.blogspot.com/2026/01/ssds-power-loss-protection-and-fsync.html, as summed up by \
         engineered.at), which is less than the rig's own time",
    )],
};

const SD_CARD: Preset = Preset {
    name: "sd-card",
    title: "SD card of application performance class A1",
    latency: Latency::log_normal(Duration::from_millis(2), Duration::from_millis(50), SEED),
    limits: Limits {
        read_bytes: None,
        written_bytes: Some(10_000_000),
        reads: Some(1_500),
        writes: Some(500),
        seek: Duration::ZERO,
    },
    figures: &[
        figure(
            "10 MB/s, 1,500 reads and 500 writes a second",
            "the least that class A1 of SD specification 5.1 allows \
             (cnx-software.com/2017/02/13/sd-specifications-5-1-to-introduce-app-performance-class-for-random-io-logo)",
        ),
        figure("flush, median 2 ms", "reckoned as one of the class's 500 writes a second"),
        figure("flush, 99th percentile 50 ms", "our guess, for the card's garbage collection"),
    ],
};

/// All presets.
pub const PRESETS: [Preset; 5] = [CONSUMER_SSD, HDD_7200, CLOUD_VOLUME, NVME_PLP, SD_CARD];

/// Returns the preset of that name.
///
/// # Errors
/// No preset has that name; the error lists the names of all presets.
pub fn preset(name: &str) -> Result<Preset, String> {
    let found = PRESETS.into_iter().find(|preset| preset.name == name);
    found.ok_or_else(|| {
        format!("{name}: not one of {}", PRESETS.map(|preset| preset.name).join(", "))
    })
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flush = self.latency.flush();
        writeln!(
            f,
            "{}: {}; an fsync of new data is two flushes, {:?}",
            self.name,
            self.title,
            flush * 2
        )?;
        for Figure { value, source } in self.figures {
            writeln!(f, "  {value}: {source}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_found_by_its_name_and_names_its_sources() {
        for known in PRESETS {
            assert_eq!(preset(known.name), Ok(known.clone()));
            assert!(known.to_string().contains(known.figures[0].source), "{known}");
        }
        assert!(preset("floppy").unwrap_err().contains("hdd-7200"));
    }
}
