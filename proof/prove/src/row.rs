//! A row of the table: its role and its findings.

use crate::Result;
use crate::campaign::Findings;
use crate::config::RunConfig;
use serde::Serialize;
use std::fmt;

/// The role of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// The shipped tool on disks that keep what they report as flushed.
    Promise,
    /// Without flushes no promise can hold: if the control loses nothing, the rig detects nothing.
    Control,
    /// The tool without one step.
    Mutant,
    /// The tool without a step that POSIX requires and that none of these file systems needs.
    NeedlessMutant,
    /// Another tool, or none.
    Rival,
}

impl Role {
    /// Returns the role's word in the table and in `--only`.
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
    pub config: RunConfig,
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
        if silent > 0 {
            write!(f, "  ({silent} lost without a note, as documented)")
        } else {
            Ok(())
        }
    }
}

/// Makes the findings of a row; the argument is the seed.
type Make<'a> = Box<dyn Fn(u64) -> Result<Findings> + Sync + 'a>;

/// A row that has not been made yet.
pub(crate) struct Job<'a> {
    pub role: Role,
    pub name: String,
    pub config: RunConfig,
    pub make: Make<'a>,
}

impl Job<'_> {
    pub(crate) fn row(&self, seed: u64) -> Result<Row> {
        let findings = (self.make)(seed)?;
        Ok(Row { role: self.role, name: self.name.clone(), config: self.config, findings })
    }
}
