//! Developer commands of the workspace, and the tidy rules that its tests apply.

pub mod args;
pub mod book;
pub mod client_types;
pub mod mutants;
pub mod parts;
pub mod snippets;
pub mod steps;
pub mod tidy;
