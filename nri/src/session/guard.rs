//! Runs a handler so that it can't take the session with it: with a deadline, and with its panics caught.
//!
//! Invariant: [`guarded`] always returns within its budget, whatever the handler does, as long as the tokio runtime has a
//! worker left to run it.

use std::any::Any;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

use crate::refusal::{Refusal, RefusalCode};

/// A task that does not outlive its owner.
#[derive(Debug)]
pub(super) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    pub(super) fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits for the task. Call it until it returns once.
    pub(super) async fn join(&mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The handler's answer, or a refusal in its stead when it panics or `budget` runs out.
///
/// The handler is a task of its own, so the deadline holds even where the handler blocks its thread.
pub(super) async fn guarded<T: Send + 'static>(
    method: &str,
    budget: Duration,
    handler: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let mut task = AbortOnDrop::spawn(handler);
    match tokio::time::timeout(budget, task.join()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let reason = match error.try_into_panic() {
                Ok(panic) => format!(
                    "the plugin panicked in {method}: {}",
                    panic_message(&*panic)
                ),
                Err(error) => format!("the plugin's {method} was cut short: {error}"),
            };
            tracing::error!(method, reason, "answering with an error");
            Err(Refusal::new(reason).with_code(RefusalCode::Internal))
        }
        Err(_) => {
            let reason = format!("the plugin had no answer to {method} within {budget:?}");
            tracing::error!(
                method,
                ?budget,
                "answering with an error: the handler is too slow"
            );
            Err(Refusal::new(reason).with_code(RefusalCode::Internal))
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn panics_become_errors_that_carry_their_message() {
        let refusal = guarded::<()>("CreateContainer", BUDGET, async {
            panic!("lost {}", "marbles")
        })
        .await
        .unwrap_err();
        assert_eq!(
            refusal.message(),
            "the plugin panicked in CreateContainer: lost marbles"
        );
        assert_eq!(refusal.code(), RefusalCode::Internal);
    }

    #[tokio::test]
    async fn slow_handlers_become_errors() {
        let refusal = guarded::<()>("Synchronize", BUDGET, std::future::pending())
            .await
            .unwrap_err();
        assert!(
            refusal
                .message()
                .starts_with("the plugin had no answer to Synchronize"),
            "{refusal}"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_deadline_holds_while_a_handler_blocks_its_thread() {
        let started = std::time::Instant::now();
        let blocking = async {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        assert!(guarded("StartContainer", BUDGET, blocking).await.is_err());
        assert!(started.elapsed() < Duration::from_secs(1));
    }
}
