//! Random bytes in place of each file.
