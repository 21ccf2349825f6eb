//! Hold.
