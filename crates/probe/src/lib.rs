//! Probe.
