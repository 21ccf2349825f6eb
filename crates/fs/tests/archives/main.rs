//! Archives: packed, unpacked, compared with GNU tar's, and damaged on purpose.
//!
//! Needs root, for owners and device nodes, and GNU tar.

mod agreement;
mod hostile;
mod support;
