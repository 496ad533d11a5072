//! Documents on the register: whoever goes by one is told here that it has changed.

use super::Driver;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{DocumentKind, DocumentName};

impl Driver {
    /// Another version of a document stands, or it was deleted. Only while the register is read:
    /// what stood there before is told all at once, by [`Driver::documents_were_read`].
    pub(super) fn document_changed(&mut self, register: usize, name: &DocumentName, now: Moment) {
        tracing::debug!(register, document = %name, "a document has changed");
        match name.kind() {
            #[cfg(feature = "schedules")]
            DocumentKind::Schedule => self.schedule_changed(register, name, now),
            #[cfg(not(feature = "schedules"))]
            DocumentKind::Schedule => {}
            DocumentKind::Settings => self.take_up_settings(register, now),
            DocumentKind::Drain => self.take_up_drain_request(register, now),
        }
    }

    /// A register was read to its end: at the start, and when another one has taken its place.
    /// Documents that were known before and do not stand there are gone.
    pub(super) fn documents_were_read(&mut self, register: usize, now: Moment) {
        self.take_up_settings(register, now);
        self.take_up_drain_request(register, now);
        #[cfg(feature = "schedules")]
        self.take_up_schedules(register, now);
    }
}
