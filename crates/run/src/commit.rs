//! What a run makes durable: its state while calls may be held, commits on the way, and the one at
//! the end.

pub(crate) mod active;
pub(crate) mod checkpoints;
pub(crate) mod directory;
pub(crate) mod state;
