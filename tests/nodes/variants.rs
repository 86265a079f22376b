//! Nodes in which something is wrong: what is left, what is said, and the exit code.

use crate::build::{Node, can_mknod};
use crate::describe;

#[test]
fn what_lies_is_found_out_and_hides_nothing_else() {
    if !can_mknod() {
        return;
    }
    let mut count = 0;
    for (name, description) in describe::all() {
        for variant in &description.variants {
            count += 1;
            let mut node = Node::new(&description);
            for path in &variant.remove {
                node.remove(path);
            }
            node.add(&variant.put);
            let mut content = description.content.clone();
            if !variant.put.gpus.is_empty() {
                content.gpus.clone_from(&variant.put.gpus);
            }
            content.errors.extend(variant.put.errors.clone());
            let driver = variant.driver.as_ref().or(description.driver.as_ref());
            node.topology(driver.map(String::as_str), &content);
            let run = node.run(&variant.arguments);
            let what = format!("{name}, {}", variant.name);
            assert_eq!(run.code, variant.exit, "{what}: {}", run.stderr);
            assert_eq!(run.devices(), variant.devices, "{what}: {}", run.stderr);
            for words in &variant.says {
                assert!(
                    run.stderr.contains(words),
                    "{what}: {words}: {}",
                    run.stderr
                );
            }
            for words in &variant.without {
                assert!(
                    !run.stdout.contains(words),
                    "{what}: {words}: {}",
                    run.stdout
                );
            }
        }
    }
    assert!(count >= 12, "{count} variants");
}
