//! One module for each command.

pub mod advice;
pub mod bench;
pub mod oci;
pub mod root;
pub mod run;
pub mod setup;
pub mod stats;
pub mod status;
pub mod tree;
