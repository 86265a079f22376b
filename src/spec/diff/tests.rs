use super::*;

const BASE: &str = r#"
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
  - name: "GPU-a"
    containerEdits:
      deviceNodes:
        - {path: /dev/nvidia0, type: c, major: 195, minor: 0}
        - {path: /dev/dri/card0, type: c, major: 226, minor: 0}
  - name: "GPU-b"
    containerEdits:
      deviceNodes: [{path: /dev/nvidia1}]
containerEdits:
  env: ["A=1", "B=2"]
  deviceNodes: [{path: /dev/nvidia-uvm}]
  mounts:
    - {hostPath: /l/libcuda.so.1.2, containerPath: /l/libcuda.so.1, options: [ro, nosuid]}
  hooks:
    - {hookName: createContainer, path: /bin/h, args: [h, one]}
    - {hookName: createContainer, path: /bin/h, args: [h, two]}
"#;

fn spec(text: &str) -> Spec {
    Spec::from_yaml(text).unwrap()
}

fn against_base(from: &str, to: &str) -> Vec<Difference> {
    let text = BASE.replace(from, to);
    assert_ne!(text, BASE, "{from}");
    diff(&spec(BASE), &spec(&text))
}

#[test]
fn what_no_reader_can_tell_apart_is_no_difference() {
    for (from, to) in [
        ("\"0.5.0\"", "\"v0.5.0\""),
        ("[ro, nosuid]", "[nosuid, ro]"),
        ("[\"A=1\", \"B=2\"]", "[\"B=2\", \"A=0\", \"A=1\"]"),
        (
            "{path: /dev/nvidia1}",
            "{path: /dev/nvidia1, hostPath: /dev/nvidia1, permissions: rwm, type: \"\", major: 0, minor: 7}",
        ),
        (
            "        - {path: /dev/nvidia0, type: c, major: 195, minor: 0}\n        - {path: /dev/dri/card0, type: c, major: 226, minor: 0}",
            "        - {path: /dev/dri/card0, type: c, major: 226, minor: 0}\n        - {path: /dev/nvidia0, type: c, major: 195}",
        ),
    ] {
        assert_eq!(against_base(from, to), [], "{to}");
    }
    let json = spec(BASE).to_json();
    assert_eq!(diff(&spec(BASE), &Spec::from_json(&json).unwrap()), []);
}

#[test]
fn each_kind_of_difference_names_its_place_and_both_sides() {
    for (from, to, place, change) in [
        ("\"0.5.0\"", "\"0.7.0\"", "cdiVersion", Change::Changed),
        ("nvidia.com/gpu", "amd.com/gpu", "kind", Change::Changed),
        ("GPU-b", "GPU-c", "devices[GPU-b]", Change::Removed),
        (
            "minor: 0}\n        - {path: /dev/dri",
            "minor: 3}\n        - {path: /dev/dri",
            "devices[GPU-a].deviceNodes[/dev/nvidia0]",
            Change::Changed,
        ),
        (
            "/dev/dri/card0",
            "/dev/dri/card7",
            "devices[GPU-a].deviceNodes[/dev/dri/card0]",
            Change::Removed,
        ),
        ("A=1", "A=3", "containerEdits.env[A]", Change::Changed),
        (
            "libcuda.so.1.2",
            "libcuda.so.1.3",
            "containerEdits.mounts[/l/libcuda.so.1]",
            Change::Changed,
        ),
        (
            "[ro, nosuid]",
            "[ro]",
            "containerEdits.mounts[/l/libcuda.so.1]",
            Change::Changed,
        ),
        (
            "[h, two]",
            "[h, three]",
            "containerEdits.hooks[createContainer]",
            Change::Changed,
        ),
        (
            "createContainer, path: /bin/h, args: [h, two]",
            "poststop, path: /bin/h, args: [h, two]",
            "containerEdits.hooks[createContainer]",
            Change::Changed,
        ),
    ] {
        let found = against_base(from, to);
        assert!(
            found.iter().any(|d| d.place == place && d.change == change),
            "{to}: {found:?}"
        );
    }
}

#[test]
fn the_order_of_hooks_counts() {
    let mut swapped = spec(BASE);
    swapped.container_edits.hooks.reverse();
    let found = diff(&spec(BASE), &swapped);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].old.as_deref(),
        Some(r#"/bin/h ["h", "one"]; then /bin/h ["h", "two"]"#)
    );
}

#[test]
fn both_directions_tell_of_the_same_places() {
    let other = spec(&BASE.replace("GPU-b", "GPU-c").replace("A=1", "C=1"));
    let there = diff(&spec(BASE), &other);
    let back = diff(&other, &spec(BASE));
    let places = |list: &[Difference]| list.iter().map(|d| d.place.clone()).collect::<Vec<_>>();
    assert_eq!(places(&there), places(&back));
    assert!(
        there
            .iter()
            .zip(&back)
            .all(|(a, b)| a.old == b.new && a.new == b.old)
    );
}

#[test]
fn groups_rdt_and_net_devices_are_compared_too() {
    let mut new = spec(BASE);
    new.container_edits.additional_gids = vec![0, 44, 44];
    new.container_edits.intel_rdt = Some(cdi::IntelRdt {
        clos_id: Some("gpu".into()),
        ..cdi::IntelRdt::default()
    });
    new.container_edits.net_devices = vec![cdi::NetDevice {
        host_interface_name: "ib0".into(),
        name: "eth1".into(),
    }];
    let found = diff(&spec(BASE), &new);
    let news: Vec<_> = found.iter().map(|d| d.new.as_deref().unwrap()).collect();
    assert_eq!(news, ["eth1", "closID gpu", "44"]);
    new.container_edits.additional_gids = vec![0];
    new.container_edits.intel_rdt = None;
    new.container_edits.net_devices.clear();
    assert_eq!(diff(&spec(BASE), &new), []);
}
