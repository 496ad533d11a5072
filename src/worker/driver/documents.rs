//! Documents on the register: whoever goes by one is told here that it has changed.

use super::Driver;
use crate::protocol::moment::Moment;
use crate::protocol::register::{DocumentKind, DocumentName};

impl Driver {
    /// Another version of a document stands, or it was deleted. Only while the register is read: what stood there before is told all at once, by
    /// [`Driver::documents_were_read`].
    pub(super) fn document_changed(&mut self, register: usize, name: &DocumentName, now: Moment) {
        tracing::debug!(register, ?now, document = %name, "a document has changed");
        match name.kind() {
            #[cfg(feature = "schedules")]
            DocumentKind::Schedule => self.schedule_changed(register, name, now),
            #[cfg(not(feature = "schedules"))]
            DocumentKind::Schedule => {}
            DocumentKind::Settings => {}
        }
    }

    /// A register was read to its end: at the start, and when another one has taken its place. Documents that were known before and do not stand there
    /// are gone.
    pub(super) fn documents_were_read(&mut self, register: usize, now: Moment) {
        #[cfg(feature = "schedules")]
        self.forget_schedules(register);
        let Some(read) = self.registers.get(register) else { return };
        let documents = read.fold.documents();
        let all = [DocumentKind::Schedule, DocumentKind::Settings];
        let names: Vec<DocumentName> = all
            .iter()
            .flat_map(|kind| documents.of(*kind))
            .map(|(name, ..)| name.clone())
            .collect();
        for name in names {
            self.document_changed(register, &name, now);
        }
    }
}
