//! temporary
pub mod mounted;
