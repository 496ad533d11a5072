//! The log with its threads, over a directory.
