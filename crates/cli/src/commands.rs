//! One module for each command.

pub(crate) mod advice;
pub mod bench;
pub mod help;
pub(crate) mod json;
pub mod oci;
pub(crate) mod root;
pub mod run;
pub mod setup;
pub(crate) mod stats;
pub mod status;
pub mod tree;
