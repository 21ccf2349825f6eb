//! The programs of every policy, in an interpreter and in the kernel.

#![forbid(unsafe_code)]

mod arguments;
mod child;
mod common;
mod fuzz;
mod golden;
mod interpreter;
mod live;
mod numbers;
mod shape;
mod verdicts;
