//! A row of the table: what it is for, and what was found.

use crate::Result;
use crate::config::Config;
use crate::cuts::Findings;
use serde::Serialize;
use std::fmt;

/// What a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// The tool as it ships, on disks that keep what they say.
    Promise,
    /// Without flushes nothing can be kept: if nothing is seen to be lost, the rig is blind.
    Control,
    /// The tool without one step.
    Mutant,
    /// The tool without a step that POSIX asks for and that none of these file systems needs.
    NeedlessMutant,
    /// Another tool, or none.
    Rival,
}

impl Role {
    /// The word for it in the table and in `--only`.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Promise => "promise",
            Self::Control => "control",
            Self::Mutant | Self::NeedlessMutant => "mutant",
            Self::Rival => "rival",
        }
    }
}

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub role: Role,
    pub name: String,
    pub config: Config,
    #[serde(flatten)]
    pub findings: Findings,
}

impl Row {
    fn found(&self) -> String {
        if let Some(reason) = &self.findings.skipped {
            return format!("SKIPPED: {reason}");
        }
        if self.findings.found.is_empty() {
            return "-".to_owned();
        }
        let found = self.findings.found.iter();
        found.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.findings.millis / self.findings.cuts.max(1) as u64;
        let (group, name, config) = (self.role.group(), &self.name, self.config.to_string());
        let Findings { cuts, refused, silent, .. } = self.findings;
        write!(f, "{group:8} {name:26} {config:38} {cuts:5} cuts  {each:4} ms each  ")?;
        write!(f, "{refused:3} refused  {}", self.found())?;
        if silent > 0 { write!(f, "  ({silent} lost before the disk knew)") } else { Ok(()) }
    }
}

/// What a row's findings come from; the argument is its seed.
type Make<'a> = Box<dyn Fn(u64) -> Result<Findings> + Sync + 'a>;

/// A row that is still to be made.
pub(crate) struct Job<'a> {
    pub role: Role,
    pub name: String,
    pub config: Config,
    pub make: Make<'a>,
}

impl Job<'_> {
    /// Makes it.
    pub(crate) fn row(&self, seed: u64) -> Result<Row> {
        let findings = (self.make)(seed)?;
        Ok(Row { role: self.role, name: self.name.clone(), config: self.config, findings })
    }
}
