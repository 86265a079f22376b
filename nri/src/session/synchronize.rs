//! Gathers a `Synchronize` that comes in parts.
//!
//! Invariants: nothing is acted on before the last part; what is gathered has a bound. The runtime may send thousands of
//! empty parts (a defect of the reference implementation), so nothing is logged here.

use crate::api::{Container, PodSandbox, SynchronizeRequest};
use crate::refusal::{Refusal, RefusalCode};

/// Encoded bytes of all parts together: about 80 000 containers.
const TOTAL_MAX: usize = 256 << 20;

/// What the runtime has.
#[derive(Debug, PartialEq)]
pub(super) struct Whole {
    pub(super) pods: Vec<PodSandbox>,
    pub(super) containers: Vec<Container>,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    total: usize,
}

impl Parts {
    /// Takes a part of `len` encoded bytes. Returns everything with the last one, `None` before it.
    pub(super) fn add(
        &mut self,
        part: SynchronizeRequest,
        len: usize,
    ) -> Result<Option<Whole>, Refusal> {
        self.total = self.total.saturating_add(len);
        if self.total > TOTAL_MAX {
            *self = Self::default();
            let reason = format!("the parts of Synchronize exceed {TOTAL_MAX} bytes");
            return Err(Refusal::new(reason).with_code(RefusalCode::ResourceExhausted));
        }
        self.pods.extend(part.pods);
        self.containers.extend(part.containers);
        if part.more {
            return Ok(None);
        }
        let Self {
            pods, containers, ..
        } = std::mem::take(self);
        Ok(Some(Whole { pods, containers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(pod: &str, container: &str, more: bool) -> SynchronizeRequest {
        SynchronizeRequest {
            pods: vec![PodSandbox {
                id: pod.into(),
                ..Default::default()
            }],
            containers: vec![Container {
                id: container.into(),
                ..Default::default()
            }],
            more,
            ..Default::default()
        }
    }

    #[test]
    fn parts_are_handed_out_once_with_the_last() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(part("p1", "c1", true), 1), Ok(None));
        assert_eq!(
            parts.add(
                SynchronizeRequest {
                    more: true,
                    ..Default::default()
                },
                0
            ),
            Ok(None)
        );
        let Whole { pods, containers } = parts.add(part("p2", "c2", false), 1).unwrap().unwrap();
        assert_eq!(
            pods.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(),
            ["p1", "p2"]
        );
        assert_eq!(
            containers.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(),
            ["c1", "c2"]
        );
        let Whole { pods, .. } = parts.add(part("p3", "c3", false), 1).unwrap().unwrap();
        assert_eq!(pods.len(), 1, "nothing of the first one is left");
    }

    #[test]
    fn parts_without_end_are_refused() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(part("p", "c", true), TOTAL_MAX), Ok(None));
        assert_eq!(
            parts.add(part("p", "c", true), 1).unwrap_err().code(),
            RefusalCode::ResourceExhausted
        );
    }
}
