//! The answers to Karmada's questions about ZooKeeper objects.
//!
//! Each operation is a function from the object that Karmada sends to its answer, in its own file. `handler` reads the
//! question and calls the function, and `wire` holds the types of questions and answers.

pub mod aggregate;
pub mod dependency;
pub(crate) mod equal;
pub mod handler;
pub mod health;
pub mod object;
pub mod refusal;
pub mod replica;
pub mod revise;
pub mod wire;
