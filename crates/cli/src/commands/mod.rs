//! What each command does.

pub mod advice;
pub mod bench;
pub mod run;
pub mod stats;
pub mod status;
