//! The secret of the webhooks, and signatures by the Standard Webhooks specification.

use super::WebhookConfigError;
use crate::reload::Reloaded;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The shortest secret, in bytes, as the specification recommends.
const SECRET_BYTES_MIN: usize = 24;

/// The prefix of a secret that is written in base64.
const PREFIX: &str = "whsec_";

/// The secret in a file. It is read again when the file changes.
#[derive(Debug)]
pub(super) struct WebhookSecret {
    path: PathBuf,
    key: Reloaded<hmac::Key>,
}

impl WebhookSecret {
    pub(super) fn open(path: &Path) -> Result<Self, WebhookConfigError> {
        let key = Reloaded::open(vec![path.to_owned()], || read(path))?;
        Ok(Self { path: path.to_owned(), key })
    }

    /// The value of the header `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let key: Arc<hmac::Key> = self.key.get(|| read(&self.path));
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
    }
}

fn read(path: &Path) -> Result<hmac::Key, WebhookConfigError> {
    let failed = |problem: String| WebhookConfigError::Secret { path: path.to_owned(), problem };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let text = text.trim_ascii();
    let secret = match text.strip_prefix(PREFIX.as_bytes()) {
        Some(encoded) => BASE64_STANDARD
            .decode(encoded)
            .map_err(|error| failed(format!("the text after `{PREFIX}` is not base64: {error}")))?,
        None => text.to_owned(),
    };
    if secret.len() < SECRET_BYTES_MIN {
        let bytes = secret.len();
        return Err(failed(format!(
            "it has {bytes} bytes; at least {SECRET_BYTES_MIN} are needed"
        )));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &secret))
}
