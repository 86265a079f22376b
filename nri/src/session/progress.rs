//! How far a session has come, and the [`Status`] that follows from it.
//!
//! Registration's answer and `Configure`/`Synchronize` come in either order; the plugin is active when both are done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::events::Events;
use crate::status::Status;

#[derive(Debug)]
pub(super) struct Progress {
    steps: Mutex<Steps>,
    status: watch::Sender<Status>,
    active: Notify,
    refused: Notify,
    shutdown: Notify,
}

#[derive(Debug, Default)]
struct Steps {
    registered: bool,
    events: Option<Events>,
    synchronize_begun: bool,
    synchronized: bool,
}

impl Progress {
    pub(super) fn new(status: watch::Sender<Status>) -> Self {
        Self {
            steps: Mutex::default(),
            status,
            active: Notify::new(),
            refused: Notify::new(),
            shutdown: Notify::new(),
        }
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        // Plain flags: no panic can leave them half-changed.
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Steps)) {
        let status = {
            let mut steps = self.steps();
            change(&mut steps);
            if steps.registered && steps.synchronized {
                self.active.notify_one();
                Status::Registered
            } else if steps.events.is_some() {
                Status::Configured
            } else {
                Status::Connecting
            }
        };
        self.status
            .send_if_modified(|current| std::mem::replace(current, status) != status);
    }

    pub(super) fn registered(&self) {
        self.update(|steps| steps.registered = true);
    }

    pub(super) fn configured(&self, events: Events) {
        self.update(|steps| steps.events = Some(events));
    }

    pub(super) fn synchronize_begun(&self) {
        self.update(|steps| steps.synchronize_begun = true);
    }

    pub(super) fn synchronized(&self) {
        self.update(|steps| steps.synchronized = true);
    }

    /// `Configure` or `Synchronize` was answered with an error: this connection will not become active.
    pub(super) fn refuse(&self) {
        self.refused.notify_one();
    }

    /// Waits until that was so. For one waiter.
    pub(super) async fn refused(&self) {
        self.refused.notified().await;
    }

    pub(super) fn request_shutdown(&self) {
        self.shutdown.notify_one();
    }

    pub(super) async fn shutdown_requested(&self) {
        self.shutdown.notified().await;
    }

    pub(super) fn is_active(&self) -> bool {
        let steps = self.steps();
        steps.registered && steps.synchronized
    }

    /// Waits until the plugin is active. For one waiter.
    pub(super) async fn active(&self) {
        while !self.is_active() {
            self.active.notified().await;
        }
    }

    pub(super) fn suspects_events(&self) -> bool {
        let steps = self.steps();
        !steps.synchronize_begun
            && steps
                .events
                .is_some_and(|events| events.intersects(Events::SINCE_0_10))
    }

    pub(super) fn stage(&self) -> &'static str {
        match &*self.steps() {
            Steps {
                synchronized: true,
                registered: true,
                ..
            } => "after the plugin was active",
            Steps {
                synchronized: true, ..
            } => "after Synchronize, before it answered RegisterPlugin",
            Steps {
                synchronize_begun: true,
                ..
            } => "amid Synchronize",
            Steps {
                events: Some(_), ..
            } => "after Configure, before Synchronize",
            Steps {
                registered: true, ..
            } => "after RegisterPlugin, before Configure",
            _ => "before it answered RegisterPlugin",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_needs_the_registration_and_the_synchronization_in_either_order() {
        for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0]] {
            let (status, seen) = watch::channel(Status::Connecting);
            let progress = Progress::new(status);
            for (done, step) in order.into_iter().enumerate() {
                assert!(!progress.is_active(), "{order:?} after {done} steps");
                match step {
                    0 => progress.registered(),
                    1 => progress.configured(Events::CREATE_CONTAINER),
                    _ => progress.synchronized(),
                }
            }
            assert!(progress.is_active());
            assert_eq!(*seen.borrow(), Status::Registered);
        }
    }

    #[test]
    fn new_events_are_suspected_only_between_configure_and_synchronize() {
        let progress = Progress::new(watch::channel(Status::Connecting).0);
        assert!(!progress.suspects_events());
        progress.configured(Events::CREATE_CONTAINER);
        assert!(!progress.suspects_events());
        progress.configured(Events::CREATE_CONTAINER | Events::VALIDATE_CONTAINER_ADJUSTMENT);
        assert!(progress.suspects_events());
        progress.synchronize_begun();
        assert!(!progress.suspects_events());
    }
}
