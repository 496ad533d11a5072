//! Documents on a register, such as schedules and the settings of a queue. Each has a name and
//! versions.

use super::Client;
use super::publishers::PublishFailure;
use super::registers::FollowedRegister;
use crate::topics::{TopicNameError, TopicNames};
use crate::transport::{PublishError, TransportError};
use bytes::Bytes;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, RegisterEntry, RegisterKey, RegisterVerdict,
};

/// The maximum content of a document: every worker of the queue keeps it in memory.
const CONTENT_BYTES_MAX: usize = 256 * 1024;

/// How often a change whose version does not matter starts again after a conflicting change.
const CONFLICTS_MAX: u32 = 10;

/// Why a document, such as a schedule or the settings of a queue, was not read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The topic's name is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The name is empty, or has more than 200 bytes.
    #[error("the name of a document has 1 to 200 bytes, this one has {0}")]
    Name(usize),
    /// The document is larger than 256 KiB.
    #[error("a document has up to {CONTENT_BYTES_MAX} bytes, this one would have {0}")]
    TooLarge(usize),
    /// This version of longhaul cannot read or write the document.
    #[error("the document is not usable: {0}")]
    Invalid(String),
    /// Somebody else changed the document, and this call changed nothing. Read it again.
    #[error("somebody else has changed the document: its version is {current} now")]
    VersionConflict {
        /// The current version.
        current: u64,
    },
    /// The broker cannot be reached, or denies access: nothing was changed.
    #[error("the register cannot be read or written")]
    Transport(#[source] TransportError),
    /// The broker rejected the change.
    #[error("the change was not stored: {0}")]
    Refused(String),
    /// The change was sent, and it is unknown whether it was accepted. Read the document again.
    #[error("the document may or may not have been changed: {0}")]
    Unknown(String),
}

impl Client {
    /// The queue's register, read to its end.
    pub(super) async fn register_of(
        &self,
        names: &TopicNames,
    ) -> Result<FollowedRegister, DocumentError> {
        let read = self.inner.registers.read(&names.register).await;
        read.map_err(DocumentError::Transport)
    }

    /// Changes a document whatever its version, and returns the version that has the change. `next`
    /// makes the new content from the current version and content; if it returns none, nothing is
    /// written. After a conflicting change, `next` is called again, up to 10 times; then the
    /// conflict is the error.
    pub(super) async fn rewrite_document<E: From<DocumentError>>(
        &self,
        register: &FollowedRegister,
        name: &DocumentName,
        next: impl Fn(u64, Option<&Bytes>) -> Result<Option<Bytes>, E>,
    ) -> Result<u64, E> {
        let mut conflicts = 0;
        loop {
            let (version, current) = register.with_documents(|documents| {
                (documents.version(name), documents.get(name).cloned())
            });
            let Some(content) = next(version, current.as_ref())? else { return Ok(version) };
            match self.change_document(register, name, (version, content)).await {
                Err(DocumentError::VersionConflict { .. }) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                }
                end => return Ok(end?),
            }
        }
    }

    /// Publishes the next version of a document, and waits until it is known whether it was
    /// accepted. Empty content deletes the document. Returns the new version.
    pub(super) async fn change_document(
        &self,
        register: &FollowedRegister,
        name: &DocumentName,
        (expected, content): (u64, Bytes),
    ) -> Result<u64, DocumentError> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(DocumentError::TooLarge(content.len()));
        }
        let current = register.with_documents(|documents| documents.version(name));
        let next = expected.checked_add(1).filter(|_| current == expected);
        let version = next.ok_or(DocumentError::VersionConflict { current })?;
        let inner = &self.inner;
        let stamp = inner.registers.next_stamp();
        let key = DocumentKey { name: name.clone(), version, stamp };
        let entry = RegisterEntry::Document(Document { key, content });
        let read_back = inner.registers.publish(&inner.publishers, register, &entry).await;
        match read_back.map_err(DocumentError::from)? {
            Some(RegisterVerdict::Accepted) => {
                self.remove_outdated(register, name).await;
                Ok(version)
            }
            Some(RegisterVerdict::Ignored(_) | RegisterVerdict::Lost(_)) => {
                let current = register.with_documents(|documents| documents.version(name));
                Err(DocumentError::VersionConflict { current })
            }
            None => Err(DocumentError::Unknown("it was not read back".to_owned())),
        }
    }

    /// Publishes tombstones for outdated entries of a document. If one is lost, the next change
    /// publishes it again.
    async fn remove_outdated(&self, register: &FollowedRegister, name: &DocumentName) {
        for key in register.with_documents(|documents| documents.removable(name)) {
            let tombstone = RegisterEntry::Tombstone(RegisterKey::Document(key));
            if let Err(error) = register.put(&self.inner.publishers, &tombstone).await {
                tracing::debug!(document = %name, ?error, "an outdated version of the document stays on the register");
            }
        }
    }
}

impl From<PublishFailure> for DocumentError {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::NotSent(error) => Self::Transport(error),
            PublishFailure::Sent(PublishError::Refused(cause)) => Self::Refused(cause),
            PublishFailure::Sent(error) => Self::Unknown(error.to_string()),
        }
    }
}
