//! Damage to files that were sound.
