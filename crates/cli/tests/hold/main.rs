//! `synconce hold`: files of a daemon whose syncs the kernel answers.
//!
//! Every test runs in a process, a mount namespace and a pid namespace of its own (see
//! `harness::isolated`), with a disk of its own where it counts flushes or breaks the disk. The
//! tests need root, util-linux, perl and python3.

mod after_crash;
mod boot;
mod container;
mod crashes;
mod cut_short;
mod faults;
mod files;
mod held_file;
mod hostile;
mod inside;
mod layers;
mod left;
mod losses;
mod lost_before_restore;
mod names;
mod namespaces;
mod notes_of_losses;
mod owners;
mod places;
mod private;
mod recovery;
mod refusals;
mod restore;
mod running;
mod said;
mod shown;
mod support;
mod waits;
mod writers;
