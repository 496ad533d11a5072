//! What the admin interface has the machine do, on the machine's thread, and how the result comes
//! back.

use crate::machine::BrokerMachine;
use std::fmt;
use tokio::sync::oneshot;

/// Tells the result of a call to whoever called. To be run when everything that the result rests on
/// is on disk.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// Something that the machine is to do.
pub(crate) struct MachineCall(Box<dyn FnOnce(&mut BrokerMachine) -> Tell + Send>);

impl MachineCall {
    /// A call, and where its result comes.
    pub(crate) fn new<T: Send + 'static>(
        work: impl FnOnce(&mut BrokerMachine) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let run = move |machine: &mut BrokerMachine| -> Tell {
            let result = work(machine);
            // Whoever has stopped waiting does not want it.
            Box::new(move || drop(sender.send(result)))
        };
        (Self(Box::new(run)), receiver)
    }

    /// Does it.
    pub(crate) fn run(self, machine: &mut BrokerMachine) -> Tell {
        (self.0)(machine)
    }
}

impl fmt::Debug for MachineCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineCall").finish_non_exhaustive()
    }
}
