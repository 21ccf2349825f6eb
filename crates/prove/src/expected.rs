//! What is to be found where a step is taken away, and where none is.

use serde::Serialize;

/// What a row has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Expected {
    /// The promise is kept at every cut.
    Kept,
    /// It is not, or the rig would not see a lost flush.
    Broken,
    /// It is not, in one of the rows of this name.
    BrokenSomewhere,
    /// Whatever is found is shown.
    Shown,
}
