//! Developer commands of the workspace, and the tidy rules that its tests apply.

pub mod tidy;
