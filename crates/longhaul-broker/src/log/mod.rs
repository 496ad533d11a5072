//! The log: every entry and every change of state, in one sequence of records shared by all topics.
