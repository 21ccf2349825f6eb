//! Durable.
