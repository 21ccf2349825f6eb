//! Every way into a sync, bare and under a hold, by topic.
//!
//! The ways themselves are C programs (`ways/`), built for every kind of program that this
//! machine runs, and one in Go. Every test runs in a process, a mount namespace and a pid
//! namespace of its own (see `support::isolated`), and so needs root and util-linux.

mod builds;
mod disks;
mod ends;
mod images;
mod namespaces;
mod programs;
mod support;
mod users;
mod watched;
mod ways;
