//! One module for each command.

pub(crate) mod advice;
pub mod bench;
pub mod commit;
pub mod doctor;
pub mod eatmydata;
pub mod error;
pub mod help;
pub mod hold;
pub mod oci;
pub(crate) mod output;
pub mod promise;
pub mod real;
pub(crate) mod root;
pub mod run;
pub mod setup;
mod signal_forwarder;
pub(crate) mod stats;
pub mod status;
pub mod tree;
mod wrappers;
