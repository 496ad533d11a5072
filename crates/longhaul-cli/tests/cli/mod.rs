//! The program as people use it: transcripts of commands, and services that are started, killed and
//! restarted.

mod away;
mod canary;
mod compose;
mod dev;
mod levels;
mod migrating;
mod monitoring;
mod options;
mod overwriting;
mod relayed;
mod secured;
mod stage;
mod tokens;
mod transcripts;
mod unknown;
mod webhooks;
