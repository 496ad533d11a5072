//! A codec for tests.

use super::{Codec, PayloadError};

/// Flips all bits, and refuses bytes that it has not written.
#[derive(Clone, Copy, Debug)]
pub struct Flip(pub &'static str);

impl Codec for Flip {
    fn name(&self) -> &str {
        self.0
    }

    fn encode(&self, plain: &[u8]) -> Result<Vec<u8>, PayloadError> {
        Ok([self.0.as_bytes(), b":"]
            .concat()
            .into_iter()
            .chain(plain.iter().map(|byte| !byte))
            .collect())
    }

    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, PayloadError> {
        let rest = encoded.strip_prefix(self.0.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
        let rest = rest.ok_or_else(|| PayloadError::new("not what it has written"))?;
        Ok(rest.iter().map(|byte| !byte).collect())
    }
}
