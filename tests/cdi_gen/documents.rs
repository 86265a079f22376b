//! What the documents claim: tests that exist, commands and ids that are the program's.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::node::{Node, can_mknod};

fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all_sources(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The words in backticks of the last column of each table row.
fn named_tests(document: &str) -> Vec<&str> {
    document
        .lines()
        .filter(|line| line.starts_with("| A") || line.starts_with("| C"))
        .filter_map(|line| line.trim_end_matches(" |").rsplit(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| !name.contains('/'))
        .collect()
}

#[test]
fn every_complaint_names_a_test_that_exists() {
    let document = fs::read_to_string(source().join("docs/complaints.md")).unwrap();
    let mut code = String::new();
    all_sources(&source().join("src"), &mut code);
    all_sources(&source().join("tests"), &mut code);
    let names = named_tests(&document);
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}()")), "no test {name}");
    }
    for number in 1..=51 {
        assert!(
            document.contains(&format!("A{number} ")),
            "complaint A{number} has no line"
        );
    }
}

#[test]
fn every_command_and_flag_is_in_the_reference() {
    let reference = fs::read_to_string(source().join("docs/cdi-gen.md")).unwrap();
    let node = Node::bare();
    let help = node.command("--help", &[]).stdout;
    let mut commands = 0;
    for line in help.lines().filter(|line| line.starts_with("  ")) {
        let Some(command) = line.split_whitespace().next() else {
            continue;
        };
        if command.starts_with('-')
            || command == "help"
            || !line.starts_with("  ")
            || line.starts_with("   ")
        {
            continue;
        }
        commands += 1;
        assert!(reference.contains(&format!("`{command}`")), "{command}");
        let help = node.command(command, &["--help"]).stdout;
        for word in help.split_whitespace() {
            let Some(flag) = word.strip_prefix("--") else {
                continue;
            };
            let flag = flag.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(
                matches!(flag, "" | "help" | "version") || reference.contains(&format!("--{flag}")),
                "{command} has --{flag}, which docs/cdi-gen.md lacks"
            );
        }
    }
    assert!(commands >= 8, "{help}");
}

/// `tests/real-gpu.sh` is for a machine with a GPU. Here it runs over the fake node, so that it is
/// right in everything but the driver.
#[test]
fn the_script_for_real_gpus_runs_through_on_a_fake_one() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.procfs("0000:3b:00.0", "GPU-aaaa", 1);
    node.procfs("0000:5e:00.0", "GPU-bbbb", 0);
    let output = Command::new(source().join("tests/real-gpu.sh"))
        .arg(node.path("out"))
        .env("CDI_GEN", env!("CARGO_BIN_EXE_cdi-gen"))
        .env("DRIVER_ROOT", node.path(""))
        .env("DEV_ROOT", node.path(""))
        .env("CDI_GEN_SYS_ROOT", node.path("sys"))
        .env("CDI_GEN_PROC_ROOT", node.path("proc"))
        .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("all steps as expected"), "{said}");
    for file in ["golden.yaml", "topology.json", "nodes.txt", "proc/devices"] {
        assert!(node.path("out/node").join(file).exists(), "{file}");
    }
}
