//! Trees: roots that are cloned copy-on-write, run in, and committed once.
//!
//! A [`Store`] is a directory with frozen *layers* and small *records* of trees. A tree is a
//! stack of layers. Nothing writes into a layer once it is frozen. A command in a clone writes
//! to a [`Session`]: a session that ends normally becomes a layer, and an interrupted session
//! is removed.
#![forbid(unsafe_code)]

mod boot_epoch;
mod busy;
mod check;
mod choose;
mod commit;
pub mod enter;
mod layer;
pub mod namespace;
pub mod overlay;
mod pin;
mod reading;
pub mod record;
mod session;
mod store;
mod strategy;
mod trash;
mod view;

pub use busy::{Busy, User};
pub use check::{Altered, Listed};
pub use commit::ImportReport;
pub use reading::Reading;
pub use session::{Base, Interrupted, Lost, MountOf, Recovered, Session, Source};
pub use store::{Store, VARIABLE, default_path};
pub use strategy::{Choice, Strategy};
pub use trash::Emptied;
