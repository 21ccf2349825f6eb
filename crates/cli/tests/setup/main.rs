//! `synconce setup` as a child process: its output, its exit codes, a read-only disk, and a
//! kill at any moment; the script that sets a Kubernetes node up. Needs root, strace and
//! unshare.

mod apt;
mod crashes;
mod faults;
mod held;
mod installs;
mod kept;
mod mended;
mod messages;
mod node;
mod owners;
mod package;
mod place;
mod planted;
mod tarball;
mod turns;
mod users;
