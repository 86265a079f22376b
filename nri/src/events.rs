//! The set of events that a plugin subscribes, as `ConfigureResponse.events` carries it.
//!
//! Invariant: only bits of defined events. Which of them a runtime accepts is [`Events::accepted_by`]'s answer: one bit that
//! the runtime does not know makes it drop the plugin, and a mask of 0 means "everything" (NRI reference behaviour).

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::api::Event;
use crate::runtime::{Feature, Runtime};

/// A set of NRI events. Event `E` of the protocol is bit `E - 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Events(u32);

const fn bit(event: Event) -> Events {
    Events(1 << (event as u32 - 1))
}

/// Each event once, in protocol order, with the name it has there.
const NAMES: [(&str, Events); 14] = [
    ("RUN_POD_SANDBOX", Events::RUN_POD_SANDBOX),
    ("STOP_POD_SANDBOX", Events::STOP_POD_SANDBOX),
    ("REMOVE_POD_SANDBOX", Events::REMOVE_POD_SANDBOX),
    ("CREATE_CONTAINER", Events::CREATE_CONTAINER),
    ("POST_CREATE_CONTAINER", Events::POST_CREATE_CONTAINER),
    ("START_CONTAINER", Events::START_CONTAINER),
    ("POST_START_CONTAINER", Events::POST_START_CONTAINER),
    ("UPDATE_CONTAINER", Events::UPDATE_CONTAINER),
    ("POST_UPDATE_CONTAINER", Events::POST_UPDATE_CONTAINER),
    ("STOP_CONTAINER", Events::STOP_CONTAINER),
    ("REMOVE_CONTAINER", Events::REMOVE_CONTAINER),
    ("UPDATE_POD_SANDBOX", Events::UPDATE_POD_SANDBOX),
    ("POST_UPDATE_POD_SANDBOX", Events::POST_UPDATE_POD_SANDBOX),
    (
        "VALIDATE_CONTAINER_ADJUSTMENT",
        Events::VALIDATE_CONTAINER_ADJUSTMENT,
    ),
];

impl Events {
    /// No event.
    pub const NONE: Self = Self(0);
    /// A pod sandbox was started.
    pub const RUN_POD_SANDBOX: Self = bit(Event::RUN_POD_SANDBOX);
    /// A pod sandbox was stopped.
    pub const STOP_POD_SANDBOX: Self = bit(Event::STOP_POD_SANDBOX);
    /// A pod sandbox was removed.
    pub const REMOVE_POD_SANDBOX: Self = bit(Event::REMOVE_POD_SANDBOX);
    /// A container is to be created; the plugin may adjust it or refuse.
    pub const CREATE_CONTAINER: Self = bit(Event::CREATE_CONTAINER);
    /// A container was created. Errors are only logged by the runtime.
    pub const POST_CREATE_CONTAINER: Self = bit(Event::POST_CREATE_CONTAINER);
    /// A created container is about to run its first instruction; the plugin may refuse.
    pub const START_CONTAINER: Self = bit(Event::START_CONTAINER);
    /// A container was started.
    pub const POST_START_CONTAINER: Self = bit(Event::POST_START_CONTAINER);
    /// A container's resources are to be updated.
    pub const UPDATE_CONTAINER: Self = bit(Event::UPDATE_CONTAINER);
    /// A container's resources were updated.
    pub const POST_UPDATE_CONTAINER: Self = bit(Event::POST_UPDATE_CONTAINER);
    /// A container has stopped (its process has ended already).
    pub const STOP_CONTAINER: Self = bit(Event::STOP_CONTAINER);
    /// A container was removed.
    pub const REMOVE_CONTAINER: Self = bit(Event::REMOVE_CONTAINER);
    /// A pod sandbox's resources are to be updated. From NRI 0.10.
    pub const UPDATE_POD_SANDBOX: Self = bit(Event::UPDATE_POD_SANDBOX);
    /// A pod sandbox's resources were updated. From NRI 0.10.
    pub const POST_UPDATE_POD_SANDBOX: Self = bit(Event::POST_UPDATE_POD_SANDBOX);
    /// The merged adjustment of all plugins is to be validated. From NRI 0.10.
    pub const VALIDATE_CONTAINER_ADJUSTMENT: Self = bit(Event::VALIDATE_CONTAINER_ADJUSTMENT);
    /// Every event of this API.
    pub const ALL: Self = Self(0x3fff);
    /// The events which a runtime with NRI before 0.10 does not know.
    pub const SINCE_0_10: Self = Self(0x3800);

    /// The set with these bits; undefined bits are dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits as `ConfigureResponse.events` carries them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set of this one event; `None` for values that are no event (`UNKNOWN`, the sentinel `LAST`).
    pub fn of(event: Event) -> Option<Self> {
        (event != Event::UNKNOWN && event != Event::LAST).then(|| bit(event))
    }

    /// Whether every event of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some event of `other` is in this set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// This set without the events of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What of this set `runtime` knows. Unknown bits abort the registration (valid mask `0x7ff` before NRI 0.10, `0x3fff` after).
    #[must_use]
    pub fn accepted_by(self, runtime: &Runtime) -> Self {
        if runtime.has(Feature::Validation) {
            self
        } else {
            self.without(Self::SINCE_0_10)
        }
    }
}

impl BitOr for Events {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Events {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut separator = "";
        for (name, event) in NAMES {
            if self.contains(event) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bits_are_the_protocols() {
        let ours = Events::CREATE_CONTAINER
            | Events::START_CONTAINER
            | Events::STOP_CONTAINER
            | Events::REMOVE_CONTAINER;
        assert_eq!(ours.bits(), 0x628);
        assert_eq!(
            (ours | Events::VALIDATE_CONTAINER_ADJUSTMENT).bits(),
            0x2628
        );
        let union = NAMES
            .iter()
            .fold(Events::NONE, |all, (_, event)| all | *event);
        assert_eq!(union, Events::ALL);
    }

    #[test]
    fn undefined_bits_are_dropped() {
        assert_eq!(Events::from_bits(u32::MAX), Events::ALL);
        assert_eq!(Events::of(Event::LAST), None);
        assert_eq!(Events::of(Event::UNKNOWN), None);
        assert_eq!(
            Events::of(Event::VALIDATE_CONTAINER_ADJUSTMENT),
            Some(Events::VALIDATE_CONTAINER_ADJUSTMENT)
        );
    }

    #[test]
    fn events_of_0_10_are_withheld_from_older_runtimes() {
        let mut runtime = Runtime {
            name: "containerd".into(),
            version: "2.1.9+unknown".into(),
            nri_version: None,
            registration_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(2),
        };
        assert_eq!(Events::ALL.accepted_by(&runtime).bits(), 0x7ff);
        runtime.version = "2.2.1".into();
        assert_eq!(Events::ALL.accepted_by(&runtime).bits(), 0x3fff);
    }

    #[test]
    fn display_names_the_events() {
        assert_eq!(
            (Events::STOP_CONTAINER | Events::RUN_POD_SANDBOX).to_string(),
            "RUN_POD_SANDBOX|STOP_CONTAINER"
        );
        assert_eq!(Events::NONE.to_string(), "none");
    }
}
