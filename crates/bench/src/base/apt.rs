//! Reads the host's apt sources, so that a root can use them.
//!
//! Supports both formats of sources.list(5). auth.conf is never read, because a cached base
//! must not contain passwords.

use crate::launcher::Launcher;
use crate::{Error, files};
use std::path::{Path, PathBuf};

/// Settings of the host that apt needs in the root as well: proxies, and checks that would
/// reject a mirror of snapshots.
const CARRIED: [&str; 6] = [
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Check-",
    "Acquire::Retries ",
    "Acquire::ForceIPv",
    "Acquire::AllowReleaseInfoChange",
];

/// One source: a stanza of deb822 fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AptSource {
    fields: Vec<(String, String)>,
}

impl AptSource {
    /// Returns a plain archive.
    pub(super) fn new(uri: &str, suite: &str) -> Self {
        let fields = [("Types", "deb"), ("URIs", uri), ("Suites", suite), ("Components", "main")];
        Self { fields: fields.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec() }
    }

    fn get(&self, key: &str) -> &str {
        let mut fields = self.fields.iter();
        fields
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map_or("", |(_, value)| value.as_str())
    }

    fn set(&mut self, key: &str, value: String) {
        match self.fields.iter_mut().find(|(k, _)| k.eq_ignore_ascii_case(key)) {
            Some((_, old)) => *old = value,
            None => self.fields.push((key.to_owned(), value)),
        }
    }

    /// Returns the first URI.
    pub(super) fn uri(&self) -> &str {
        self.get("URIs").split_whitespace().next().unwrap_or("")
    }

    /// Whether the source has the suite itself, not only its updates.
    pub(super) fn has_suite(&self, suite: &str) -> bool {
        self.get("Suites").split_whitespace().any(|s| s == suite)
    }

    /// Returns the file of the signing key, if the source names one.
    pub(super) fn keyring(&self) -> Option<PathBuf> {
        let key = self.get("Signed-By").split_whitespace().next()?;
        key.starts_with('/').then(|| PathBuf::from(key))
    }

    /// Reduces the source to the binary packages of a suite and its updates in main; returns
    /// `None` if it has none.
    fn narrow(mut self, suite: &str) -> Option<Self> {
        let wanted = [suite.to_owned(), format!("{suite}-updates"), format!("{suite}-security")];
        let has = |key: &str, word: &str| self.get(key).split_whitespace().any(|w| w == word);
        let suites: Vec<String> = wanted.into_iter().filter(|w| has("Suites", w)).collect();
        let enabled = !self.get("Enabled").eq_ignore_ascii_case("no");
        if suites.is_empty() || !has("Types", "deb") || !has("Components", "main") || !enabled {
            return None;
        }
        self.set("Types", "deb".to_owned());
        self.set("Suites", suites.join(" "));
        self.set("Components", "main".to_owned());
        Some(self)
    }

    /// Returns the stanza as text.
    fn stanza(&self) -> String {
        let lines = self.fields.iter().map(|(k, v)| format!("{k}: {v}\n"));
        lines.collect()
    }
}

/// The architectures of Debian and of its ports.
const ARCHITECTURES: [&str; 25] = [
    "alpha",
    "amd64",
    "arc",
    "arm64",
    "armel",
    "armhf",
    "hppa",
    "hurd-amd64",
    "hurd-i386",
    "i386",
    "ia64",
    "loong64",
    "m68k",
    "mips",
    "mips64el",
    "mipsel",
    "powerpc",
    "ppc64",
    "ppc64el",
    "riscv64",
    "s390x",
    "sh4",
    "sparc",
    "sparc64",
    "x32",
];

/// Returns the architecture of `package`, if it names one.
pub(super) fn architecture(package: &str) -> Option<&str> {
    // A version behind `=` may have a colon, too.
    let name = package.split('=').next()?;
    name.rsplit_once(':').map(|(_, architecture)| architecture)
}

/// Checks the architectures of `packages`: apt would find the wrong one after minutes.
///
/// # Errors
/// A package of an architecture that does not exist.
pub(super) fn refuse_unknown_architectures(packages: &[String]) -> Result<(), Error> {
    for package in packages {
        if let Some(name) = architecture(package).filter(|name| !ARCHITECTURES.contains(name)) {
            let reason =
                format!("there is no architecture {name}; name one of Debian's, such as arm64");
            return Err(Error::Unsuitable { what: package.clone(), reason });
        }
    }
    Ok(())
}

/// Returns all stanzas as one file in deb822 format.
pub(super) fn render(sources: &[AptSource]) -> String {
    let stanzas: Vec<String> = sources.iter().map(AptSource::stanza).collect();
    stanzas.join("\n")
}

/// Returns the host's sources for a suite.
pub(super) fn host_sources(etc_apt: &Path, suite: &str) -> Result<Vec<AptSource>, Error> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(etc_apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let all = match file.extension().and_then(|e| e.to_str()) {
            Some("list") => parse_list(&text),
            Some("sources") => parse_deb822(&text),
            _ => continue,
        };
        found.extend(all.into_iter().filter_map(|source| source.narrow(suite)));
    }
    if found.iter().any(|source| source.has_suite(suite)) {
        return Ok(found);
    }
    Err(Error::Unsuitable {
        what: etc_apt.display().to_string(),
        reason: format!("it has no source of the suite {suite}; name a mirror"),
    })
}

/// Returns the lines of the host's apt configuration that a root needs, too.
pub(super) fn host_configuration(launcher: &Launcher) -> Result<String, Error> {
    let log = launcher.log("apt-config");
    let dump = log.with_extension("out");
    match launcher.run_in(None, &["apt-config", "dump"], &log, Some(&dump)) {
        Err(error @ Error::Interrupted { .. }) => Err(error),
        // A host without apt has no configuration.
        Err(_) => Ok(String::new()),
        Ok(_) => Ok(carried(&files::read(&dump)?)),
    }
}

fn carried(dump: &str) -> String {
    let lines = dump.lines();
    let kept = lines.filter(|line| CARRIED.iter().any(|start| line.starts_with(start)));
    kept.map(|line| format!("{line}\n")).collect()
}

/// Parses the one-line format: `deb [option=value] uri suite component...`.
fn parse_list(text: &str) -> Vec<AptSource> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<AptSource> {
    let line = line.split('#').next()?.trim();
    let (kind, mut rest) = line.split_once(char::is_whitespace)?;
    let mut source = AptSource::default();
    rest = rest.trim_start();
    if let Some(inner) = rest.strip_prefix('[') {
        let (options, after) = inner.split_once(']')?;
        for option in options.split_whitespace() {
            let (key, value) = option.split_once('=')?;
            let key = match key {
                "arch" => "Architectures",
                "signed-by" => "Signed-By",
                "trusted" => "Trusted",
                "check-valid-until" => "Check-Valid-Until",
                _ => continue,
            };
            source.set(key, value.replace(',', " "));
        }
        rest = after;
    }
    let mut words = rest.split_whitespace();
    source.set("Types", kind.to_owned());
    source.set("URIs", words.next()?.to_owned());
    source.set("Suites", words.next()?.to_owned());
    source.set("Components", words.collect::<Vec<_>>().join(" "));
    Some(source)
}

/// Parses the deb822 format: stanzas of fields; a line that starts with a blank continues the
/// field.
fn parse_deb822(text: &str) -> Vec<AptSource> {
    let mut found = Vec::new();
    let mut source = AptSource::default();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if !source.fields.is_empty() {
                found.push(std::mem::take(&mut source));
            }
        } else if line.starts_with('#') {
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = source.fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            source.fields.push((key.to_owned(), value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests;
