//! What has no figure, and why.

use serde::Serialize;

/// A measurement that was not possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotMeasured {
    /// What has no figure.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

impl NotMeasured {
    pub(crate) fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}
