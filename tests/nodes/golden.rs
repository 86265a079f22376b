//! Every spec of every node is the golden one.

use std::fs;
use std::path::Path;

use crate::build::{Node, can_mknod};
use crate::describe;

#[test]
fn the_specs_of_all_nodes_are_the_golden_ones() {
    if !can_mknod() {
        return;
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nodes");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    for (name, description) in describe::all() {
        let node = Node::new(&description);
        for (suffix, spec) in &description.specs {
            let run = node.run(&spec.arguments);
            let what = format!("{name}-{suffix}");
            assert_eq!(run.code, spec.exit, "{what}: {}", run.stderr);
            for words in &spec.says {
                assert!(
                    run.stderr.contains(words),
                    "{what}: {words}: {}",
                    run.stderr
                );
            }
            assert!(!run.stdout.contains("[ROOT]"), "{what}");
            if run.stdout.is_empty() {
                assert_ne!(run.code, 0, "{what}");
                continue;
            }
            let path = dir.join(format!("{what}.yaml"));
            if update {
                fs::write(&path, &run.stdout).unwrap();
            }
            if fs::read_to_string(&path).ok().as_deref() != Some(&run.stdout) {
                wrong.push(what);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these differ from tests/golden/nodes: {wrong:?}; UPDATE_GOLDEN=1 writes them, to be read before a commit"
    );
}

#[test]
fn no_golden_file_is_left_over() {
    let mut expected = Vec::new();
    for (name, description) in describe::all() {
        let written = description.specs.iter().filter(|(_, spec)| spec.exit < 2);
        expected.extend(written.map(|(suffix, _)| format!("{name}-{suffix}.yaml")));
    }
    expected.sort();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nodes");
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, expected);
}
