//! Edits as plain values: merging them, and what a reader makes of an incomplete device node.
//!
//! Nothing here touches a node; the caller says what the host has.

use crate::model::{ContainerEdits, DeviceNode};

impl ContainerEdits {
    /// Whether nothing would be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends `other`, as the Go library's injection does: lists in order and with repetitions, the
    /// last `intelRdt` wins as a whole.
    pub fn append(&mut self, other: &Self) {
        self.env.extend_from_slice(&other.env);
        self.device_nodes.extend_from_slice(&other.device_nodes);
        self.net_devices.extend_from_slice(&other.net_devices);
        self.hooks.extend_from_slice(&other.hooks);
        self.mounts.extend_from_slice(&other.mounts);
        if other.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&other.intel_rdt);
        }
        self.additional_gids
            .extend_from_slice(&other.additional_gids);
    }
}

impl DeviceNode {
    /// Where the node is on the host: `hostPath`, or `path` when that is absent or empty.
    pub fn host_path(&self) -> &str {
        match self.host_path.as_deref() {
            Some(path) if !path.is_empty() => path,
            _ => &self.path,
        }
    }

    /// The declared type; an empty one counts as absent, as in the readers.
    pub fn node_type(&self) -> Option<&str> {
        self.kind.as_deref().filter(|kind| !kind.is_empty())
    }

    /// Whether a runtime makes the node without looking at the host: type given, and either a major
    /// other than 0 or a FIFO. Any other node must exist on the host, or the container is not created.
    pub fn is_self_contained(&self) -> bool {
        self.node_type()
            .is_some_and(|kind| kind == "p" || self.major.unwrap_or(0) != 0)
    }

    /// Major and minor as a reader will use them, given those of the host node at [`Self::host_path`].
    ///
    /// Both numbers come from the host exactly when the major is absent or 0. A written major is used
    /// even when the host disagrees, so a stale spec opens the wrong device; compare before trusting.
    /// `None`: the host is needed and has no such node.
    pub fn numbers(&self, host: Option<(i64, i64)>) -> Option<(i64, i64)> {
        match self.major.unwrap_or(0) {
            0 => host,
            major => Some((major, self.minor.unwrap_or(0))),
        }
    }

    /// The cgroup access that readers grant: `rwm` when absent or empty, nothing for `none`.
    pub fn access(&self) -> &str {
        match self.permissions.as_deref() {
            None | Some("") => "rwm",
            Some("none") => "",
            Some(letters) => letters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::IntelRdt;

    fn node(kind: Option<&str>, major: Option<i64>, minor: Option<i64>) -> DeviceNode {
        DeviceNode {
            path: "/dev/x".into(),
            kind: kind.map(Into::into),
            major,
            minor,
            ..DeviceNode::default()
        }
    }

    #[test]
    fn a_major_of_zero_or_none_takes_both_numbers_from_the_host() {
        assert_eq!(
            node(None, None, Some(7)).numbers(Some((195, 1))),
            Some((195, 1))
        );
        assert_eq!(
            node(None, Some(0), Some(7)).numbers(Some((195, 1))),
            Some((195, 1))
        );
        assert_eq!(node(Some("c"), None, None).numbers(None), None);
    }

    #[test]
    fn a_written_major_beats_the_host() {
        assert_eq!(
            node(None, Some(200), Some(9)).numbers(Some((1, 3))),
            Some((200, 9))
        );
        assert_eq!(node(None, Some(200), None).numbers(None), Some((200, 0)));
    }

    #[test]
    fn only_a_typed_node_with_a_major_or_a_fifo_needs_no_host_node() {
        assert!(node(Some("c"), Some(195), None).is_self_contained());
        assert!(node(Some("p"), None, None).is_self_contained());
        assert!(!node(None, Some(195), None).is_self_contained());
        assert!(!node(Some(""), Some(195), None).is_self_contained());
        assert!(!node(Some("c"), Some(0), None).is_self_contained());
    }

    #[test]
    fn the_host_path_falls_back_to_the_path() {
        let mut node = node(None, None, None);
        assert_eq!(node.host_path(), "/dev/x");
        node.host_path = Some(String::new());
        assert_eq!(node.host_path(), "/dev/x");
        node.host_path = Some("/dev/y".into());
        assert_eq!(node.host_path(), "/dev/y");
    }

    #[test]
    fn access_defaults_to_everything_and_none_means_nothing() {
        for (permissions, access) in [
            (None, "rwm"),
            (Some(""), "rwm"),
            (Some("r"), "r"),
            (Some("none"), ""),
        ] {
            let node = DeviceNode {
                permissions: permissions.map(Into::into),
                ..DeviceNode::default()
            };
            assert_eq!(node.access(), access);
        }
    }

    #[test]
    fn appending_keeps_order_and_repetitions_and_the_last_rdt() {
        let rdt = |id: &str| {
            Some(IntelRdt {
                clos_id: Some(id.into()),
                ..IntelRdt::default()
            })
        };
        let edits = |env: &str, rdt| ContainerEdits {
            env: vec![env.into()],
            intel_rdt: rdt,
            ..ContainerEdits::default()
        };
        let mut sum = edits("A=1", rdt("one"));
        sum.append(&edits("B=2", rdt("two")));
        sum.append(&edits("A=1", None));
        assert_eq!(sum.env, ["A=1", "B=2", "A=1"]);
        assert_eq!(sum.intel_rdt, rdt("two"));
    }

    #[test]
    fn an_empty_rdt_object_is_an_edit() {
        assert!(ContainerEdits::default().is_empty());
        assert!(
            !ContainerEdits {
                intel_rdt: Some(IntelRdt::default()),
                ..ContainerEdits::default()
            }
            .is_empty()
        );
    }
}
