//! Calls from the admin interface to the machine's thread, and their results.

use crate::machine::BrokerMachine;
use tokio::sync::oneshot;

/// Sends the result of a call to the caller. Run it when everything that the result depends on is
/// on disk.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// Work for the machine.
pub(crate) struct MachineCall {
    /// Whether the call only reads. Its result then need not wait for the disk.
    pub(crate) is_read: bool,
    run: Box<dyn FnOnce(&mut BrokerMachine) -> Tell + Send>,
}

impl MachineCall {
    /// A call, and the receiver of its result.
    pub(crate) fn new<T: Send + 'static>(
        is_read: bool,
        work: impl FnOnce(&mut BrokerMachine) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let run = move |machine: &mut BrokerMachine| -> Tell {
            let result = work(machine);
            // Ignored if the caller no longer waits.
            Box::new(move || drop(sender.send(result)))
        };
        (Self { is_read, run: Box::new(run) }, receiver)
    }

    /// Runs the call.
    pub(crate) fn run(self, machine: &mut BrokerMachine) -> Tell {
        (self.run)(machine)
    }
}
