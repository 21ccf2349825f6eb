//! Walks on real file systems: whole trees copied, removed, fingerprinted and compared.
//!
//! Tests that mount run in namespaces of their own, and therefore need root and util-linux.

mod all_attributes;
mod changing;
mod compare;
mod copy;
mod fingerprint;
mod mounts;
mod refusals;
mod remove;
mod shapes;
mod support;
