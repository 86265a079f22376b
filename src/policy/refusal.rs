//! A refusal, worded for the person whose pod does not start.

use std::fmt;

use super::Reason;
use crate::allocation::Subject;

/// The container must not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which container.
    pub subject: Subject,
    /// Stable code.
    pub reason: Reason,
    /// What is wrong, as the second half of a sentence, naming the GPU where there is one.
    pub cause: String,
}

/// Long names and lists are cut: the text travels through the runtime and the kubelet into an event.
const CAUSE_LIMIT: usize = 600;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject {
            namespace,
            pod,
            container,
            ..
        } = &self.subject;
        let cause: String = self.cause.chars().take(CAUSE_LIMIT).collect();
        write!(
            f,
            "gpu-warden did not let container {container:?} of pod {namespace}/{pod} run: {cause}. {}. [{}]",
            self.reason.remedy(),
            self.reason
        )
    }
}

impl std::error::Error for Refusal {}
