//! A request in flight.

use std::sync::Arc;

use crate::fleet::Instance;

/// Counts one request at its instance, from the choice of the instance to the end of the exchange.
///
/// The count goes back when the ticket is dropped, whatever the reason, and once only. A ticket
/// holds its instance, so that a count never goes back to another instance's counter.
#[derive(Debug)]
#[must_use = "dropping the ticket ends the request's count"]
pub struct Ticket {
    instance: Arc<Instance>,
    counted: bool,
}

impl Ticket {
    /// Takes over a count that has just been added.
    pub(super) fn counted(instance: &Arc<Instance>) -> Self {
        Self { instance: Arc::clone(instance), counted: true }
    }

    /// The instance that serves the request.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The counter's place in the table shared with the kernel programs.
    pub fn counter_slot(&self) -> u32 {
        self.instance.counter().slot()
    }

    /// Ends the ticket without taking the count off: a kernel program has done it.
    pub fn released_by_kernel(mut self) {
        self.counted = false;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.counted {
            self.instance.counter().decrement();
        }
    }
}
