//! Documents on a register, such as schedules and the settings of a queue. Each has a name and
//! versions.

use super::registers::FollowedRegister;
use super::{ActionError, Client};
use crate::topics::{Priority, TopicNames};
use crate::transport::PublishError;
use bytes::Bytes;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentName, RegisterEntry, RegisterKey, RegisterVerdict,
};
use longhaul_core::register;

/// The maximum content of a document: every worker of the queue keeps it in memory.
pub(super) const CONTENT_BYTES_MAX: usize = 256 * 1024;

/// How often a change whose version does not matter starts again after a conflicting change.
const CONFLICTS_MAX: u32 = 10;

/// The entry of a change in the log of actions.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentAction<'a> {
    pub(super) verb: &'static str,
    pub(super) reason: &'a str,
}

impl Client {
    /// Refuses a level: workers read the register of the queue, so that a document on the level's
    /// would be stored and have no effect.
    pub(super) async fn refuse_level(&self, names: &TopicNames) -> Result<(), ActionError> {
        match self.level_of(names).await? {
            (_, Priority::Normal) => Ok(()),
            (_, Priority::High | Priority::Low) => Err(ActionError::Level(names.task.clone())),
        }
    }

    /// The queue's register, read to its end. Refuses a level.
    pub(super) async fn register_of(
        &self,
        names: &TopicNames,
    ) -> Result<FollowedRegister, ActionError> {
        self.refuse_level(names).await?;
        let read = self.inner.registers.read(&names.register).await;
        read.map_err(ActionError::Transport)
    }

    /// Changes a document whatever its version, and returns the version that has the change. `next`
    /// makes the new content from the current version and content; if it returns none, nothing is
    /// written. After a conflicting change, `next` is called again, up to 10 times; then the
    /// conflict is the error.
    pub(super) async fn rewrite_document(
        &self,
        register: &FollowedRegister,
        name: &DocumentName,
        action: DocumentAction<'_>,
        next: impl Fn(u64, Option<&Bytes>) -> Result<Option<Bytes>, ActionError>,
    ) -> Result<u64, ActionError> {
        let mut conflicts = 0;
        loop {
            let (version, current) = register.with_documents(|documents| {
                (documents.version(name), documents.get(name).cloned())
            });
            let Some(content) = next(version, current.as_ref())? else { return Ok(version) };
            match self.change_document(register, name, (version, content), action).await {
                Err(ActionError::VersionConflict { .. }) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                }
                end => return end,
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
        DocumentAction { verb, reason }: DocumentAction<'_>,
    ) -> Result<u64, ActionError> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(ActionError::TooLarge(content.len()));
        }
        let current = register.with_documents(|documents| documents.version(name));
        let next = expected.checked_add(1).filter(|_| current == expected);
        let version = next.ok_or(ActionError::VersionConflict { current })?;
        let inner = &self.inner;
        let stamp = inner.registers.next_stamp();
        let key = DocumentKey { name: name.clone(), version, stamp };
        let entry = RegisterEntry::Document(Document { key, content });
        let message = register::signed(&entry, reason, &self.operator, verb);
        let publishing = inner.registers.publish_as(&inner.publishers, register, &entry, message);
        let read_back = publishing.await;
        match read_back? {
            Some(RegisterVerdict::Accepted) => {
                let outdated = register.with_documents(|documents| documents.removable(name));
                self.remove_outdated(register, outdated).await;
                Ok(version)
            }
            Some(RegisterVerdict::Ignored(_) | RegisterVerdict::Lost(_)) => {
                let current = register.with_documents(|documents| documents.version(name));
                Err(ActionError::VersionConflict { current })
            }
            None => Err(ActionError::NoReceipt(PublishError::Unknown(
                "it was not read back".to_owned(),
            ))),
        }
    }

    /// Publishes tombstones for outdated documents. If one is lost, a later change publishes it
    /// again.
    pub(super) async fn remove_outdated(
        &self,
        register: &FollowedRegister,
        outdated: Vec<DocumentKey>,
    ) {
        for key in outdated {
            let name = key.name.clone();
            let tombstone = RegisterEntry::Tombstone(RegisterKey::Document(key));
            if let Err(error) = register.put(&self.inner.publishers, &tombstone).await {
                tracing::debug!(document = %name, %error, "an outdated document stays on the register");
            }
        }
    }
}
