//! A spec as an ordered tree: which members there are, in which order, and which texts need no quotes.

use std::collections::BTreeMap;

use crate::model::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};

/// One value of the output.
pub(super) enum Node<'a> {
    Map(Vec<(&'a str, Node<'a>)>),
    List(Vec<Node<'a>>),
    /// A path, kind or keyword: plain where that is safe.
    Word(&'a str),
    /// Always quoted.
    Text(&'a str),
    Number(i64),
    Flag(bool),
}

impl Node<'_> {
    /// Whether it takes lines of its own in YAML.
    pub(super) fn is_block(&self) -> bool {
        match self {
            Self::Map(fields) => !fields.is_empty(),
            Self::List(items) => !items.is_empty(),
            _ => false,
        }
    }
}

#[derive(Default)]
struct Fields<'a>(Vec<(&'a str, Node<'a>)>);

impl<'a> Fields<'a> {
    fn put(mut self, key: &'a str, node: Node<'a>) -> Self {
        self.0.push((key, node));
        self
    }

    fn word(self, key: &'a str, text: &'a str) -> Self {
        self.put(key, Node::Word(text))
    }

    fn maybe(self, key: &'a str, node: Option<Node<'a>>) -> Self {
        match node {
            Some(node) => self.put(key, node),
            None => self,
        }
    }

    fn maybe_word(self, key: &'a str, text: Option<&'a String>) -> Self {
        self.maybe(key, text.map(|text| Node::Word(text)))
    }

    fn maybe_number(self, key: &'a str, number: Option<impl Into<i64>>) -> Self {
        self.maybe(key, number.map(|number| Node::Number(number.into())))
    }

    fn list<T>(self, key: &'a str, items: &'a [T], node: impl Fn(&'a T) -> Node<'a>) -> Self {
        if items.is_empty() {
            return self;
        }
        self.put(key, Node::List(items.iter().map(node).collect()))
    }

    fn texts(self, key: &'a str, items: &'a [String]) -> Self {
        self.list(key, items, |text| Node::Text(text))
    }

    fn annotations(self, notes: &'a BTreeMap<String, String>) -> Self {
        if notes.is_empty() {
            return self;
        }
        let notes = notes
            .iter()
            .map(|(key, value)| (key.as_str(), Node::Text(value)));
        self.put("annotations", Node::Map(notes.collect()))
    }

    fn map(self) -> Node<'a> {
        Node::Map(self.0)
    }
}

/// The whole document.
pub(super) fn of(spec: &Spec) -> Node<'_> {
    let fields = Fields::default()
        .put("cdiVersion", Node::Text(&spec.cdi_version))
        .word("kind", &spec.kind)
        .annotations(&spec.annotations)
        .put(
            "devices",
            Node::List(spec.devices.iter().map(device).collect()),
        );
    if spec.container_edits.is_empty() {
        fields.map()
    } else {
        fields
            .put("containerEdits", edits(&spec.container_edits))
            .map()
    }
}

fn device(device: &Device) -> Node<'_> {
    Fields::default()
        .put("name", Node::Text(&device.name))
        .annotations(&device.annotations)
        .put("containerEdits", edits(&device.container_edits))
        .map()
}

fn edits(edits: &ContainerEdits) -> Node<'_> {
    Fields::default()
        .texts("env", &edits.env)
        .list("deviceNodes", &edits.device_nodes, device_node)
        .list("netDevices", &edits.net_devices, net_device)
        .list("hooks", &edits.hooks, hook)
        .list("mounts", &edits.mounts, mount)
        .maybe("intelRdt", edits.intel_rdt.as_ref().map(intel_rdt))
        .list("additionalGids", &edits.additional_gids, |gid| {
            Node::Number(i64::from(*gid))
        })
        .map()
}

fn device_node(node: &DeviceNode) -> Node<'_> {
    Fields::default()
        .word("path", &node.path)
        .maybe_word("hostPath", node.host_path.as_ref())
        .maybe_word("type", node.kind.as_ref())
        .maybe_number("major", node.major)
        .maybe_number("minor", node.minor)
        .maybe_number("fileMode", node.file_mode)
        .maybe_word("permissions", node.permissions.as_ref())
        .maybe_number("uid", node.uid)
        .maybe_number("gid", node.gid)
        .map()
}

fn net_device(device: &NetDevice) -> Node<'_> {
    Fields::default()
        .put("hostInterfaceName", Node::Text(&device.host_interface_name))
        .put("name", Node::Text(&device.name))
        .map()
}

fn mount(mount: &Mount) -> Node<'_> {
    Fields::default()
        .word("hostPath", &mount.host_path)
        .word("containerPath", &mount.container_path)
        .list("options", &mount.options, |option| Node::Word(option))
        .maybe_word("type", mount.kind.as_ref())
        .map()
}

fn hook(hook: &Hook) -> Node<'_> {
    Fields::default()
        .word("hookName", &hook.hook_name)
        .word("path", &hook.path)
        .texts("args", &hook.args)
        .texts("env", &hook.env)
        .maybe_number("timeout", hook.timeout)
        .map()
}

fn intel_rdt(rdt: &IntelRdt) -> Node<'_> {
    Fields::default()
        .maybe("closID", rdt.clos_id.as_deref().map(Node::Text))
        .maybe(
            "l3CacheSchema",
            rdt.l3_cache_schema.as_deref().map(Node::Text),
        )
        .maybe("memBwSchema", rdt.mem_bw_schema.as_deref().map(Node::Text))
        .texts("schemata", &rdt.schemata)
        .maybe("enableMonitoring", rdt.enable_monitoring.map(Node::Flag))
        .map()
}
