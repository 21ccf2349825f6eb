//! Recovery of held files after every kind of end, in states that a crash can leave. Every test
//! runs isolated, as root, with an empty state directory.

mod aside;
mod layers;
mod mounts;
mod recover;
mod restore;
mod support;
