//! Trees: roots that are cloned copy-on-write, run in, and committed once.
//!
//! A [`Store`] is a directory with frozen *layers* and small *records* of trees. A tree is a
//! stack of layers. Nothing writes into a layer once it is frozen. A command in a clone writes
//! to a [`Session`]: a session that ends normally becomes a layer, and an interrupted session
//! is removed.
//!
//! Each verb on a store is a function in the file of its name.
#![forbid(unsafe_code)]

mod boot_epoch;
mod busy;
mod check;
mod choose;
mod clone;
mod commit;
mod content;
mod discard;
pub mod enter;
mod freeze;
mod gc;
mod guard;
mod import;
mod init;
mod keep;
mod layer;
mod limits;
mod list;
mod log;
mod mount;
pub mod namespace;
pub mod overlay;
mod pin;
mod protect;
mod read;
pub mod record;
mod recover;
mod remove;
mod rename;
mod restore;
mod run;
mod session;
mod source;
mod squash;
mod store;
mod strategy;
#[cfg(test)]
mod tests;
mod trash;
mod unneeded;
mod view;

pub use busy::{Busy, TreeUser};
pub use check::{Altered, Compare, Verified, fsck, verify, verify_syncs};
pub use choose::choose;
pub use clone::{clone, new_name};
pub use commit::{commit, next_generation};
pub use content::{AlteredFile, ContentAlteration, DamagedSums};
pub use discard::discard;
pub use freeze::Frozen;
pub use gc::{Collected, Garbage, garbage, gc};
pub use guard::{Guard, Guarded};
pub use import::{ImportReport, import};
pub use init::init;
pub use layer::Alteration;
pub use limits::{Groups, Limits, Reached};
pub use list::{ListedTree, list};
pub use log::{Logged, log, older_generation};
pub use mount::{MountOf, mounted, open_mounted, open_read_only};
pub use protect::{protect, unprotect};
pub use read::{Reading, read};
pub use recover::{Interrupted, Lost, Recovered, recover};
pub use remove::{Changes, remove};
pub use rename::rename;
pub use restore::restore;
pub use run::{open_anonymous, open_session, open_to_discard};
pub use session::{Begun, Session, Working};
pub use source::{Base, NameTaken, NoSuchTree};
pub use squash::{Squashed, squash};
pub use store::{Store, VARIABLE, default_path, refuse_in_store, store_of};
pub use strategy::{Choice, Strategy};
pub use synconce_durable::error::Error;
pub use trash::{Emptied, IfBusy, empty_trash, has_trash};
pub use unneeded::LayerMount;
