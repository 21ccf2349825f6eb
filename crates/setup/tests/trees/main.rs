//! Set-ups of whole systems, as directory trees before and after.

mod containerd;
mod docker;
mod edited;
mod every;
mod held;
mod journal;
mod podman;
mod random;
mod support;
mod units;
