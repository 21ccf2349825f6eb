//! `synconce setup` as a process of its own: what it says, its exit codes, a disk
//! that is read-only, and its death at any moment; the script that sets a
//! Kubernetes node up. Needs root, strace and unshare.

mod crashes;
mod node;
mod place;
mod words;
