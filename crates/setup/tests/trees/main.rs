//! Set-ups of whole systems, as directory trees before and after.

mod containerd;
mod docker;
mod every;
mod held;
mod journal;
mod no_sync;
mod podman;
mod random;
mod support;
mod units;
