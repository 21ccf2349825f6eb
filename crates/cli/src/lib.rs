//! The command line: arguments in [`arguments`], behaviour in [`commands`], with one file for
//! each command.
#![forbid(unsafe_code)]

pub mod arguments;
pub(crate) mod cancellation;
pub mod commands;
pub mod completion;
pub mod exit;
pub(crate) mod table;
pub mod text;
