//! Trees: roots that are cloned copy-on-write, run in, and committed once.
//!
//! A *store* is a directory with frozen *layers* and small *records* of trees. A
//! tree is a stack of layers. Nothing writes into a layer once it is frozen: what a
//! command in a clone writes goes to a *session*, which becomes a layer when it ends
//! well, and is thrown away when it was cut short.
#![forbid(unsafe_code)]

pub mod archive;
pub mod engine;
pub mod enter;
pub mod namespace;
pub mod overlay;
pub mod progress;
