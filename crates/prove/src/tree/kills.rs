//! Every verb, killed.
use crate::Result;
use crate::cuts::Findings;
use crate::scene::Disk;
use crate::tool::Tool;
pub(super) fn kill(_: Disk, _: Option<&'static str>, _: &Tool, _: usize, _: u64) -> Result<Findings> {
    Err("not yet".into())
}
