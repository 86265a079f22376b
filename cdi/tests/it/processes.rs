//! Readers beside a writer, writers beside each other, and writers that are killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use cdi::{ContainerEdits, Device, Format, QualifiedName, Registry, Spec, write_spec};

fn spec(mark: usize) -> Spec {
    Spec {
        cdi_version: "0.3.0".into(),
        kind: "nvidia.com/gpu".into(),
        devices: vec![Device {
            name: "GPU-0".into(),
            container_edits: ContainerEdits {
                // A different size each time, over several pages.
                env: vec![format!("A={mark}"); 1 + mark % 7 * 300],
                ..ContainerEdits::default()
            },
            ..Device::default()
        }],
        ..Spec::default()
    }
}

fn name() -> QualifiedName {
    "nvidia.com/gpu=GPU-0".parse().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_reader_never_sees_a_torn_or_missing_file_while_a_writer_loops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    write_spec(&path, &spec(0), Format::Yaml).unwrap();
    let done = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                let registry = Registry::load(&[dir.path().into()]);
                assert!(registry.broken().is_empty(), "{:?}", registry.broken());
                let env = &registry
                    .resolve(&name())
                    .unwrap()
                    .device
                    .container_edits
                    .env;
                assert!(env.iter().all(|entry| *entry == env[0]));
                reads += 1;
            }
            reads
        });
        for mark in 1..200 {
            write_spec(&path, &spec(mark), Format::Yaml).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 0);
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn writers_of_one_target_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/a.yaml");
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for mark in 0..40 {
                    write_spec(path, &spec(writer * 1000 + mark), Format::Yaml).unwrap();
                }
            });
        }
    });
    Spec::load(&path).unwrap();
    assert_eq!(names(path.parent().unwrap()), ["a.yaml"]);
}

const CHILD: &str = "CDI_TEST_WRITE_UNTIL_KILLED";

/// The test runs itself again as the process that is killed.
#[test]
fn a_killed_writer_leaves_a_whole_file_and_the_next_one_tidies_up() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let path = Path::new(&dir).join("a.yaml");
        for mark in 0.. {
            write_spec(&path, &spec(mark), Format::Yaml).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    write_spec(&path, &spec(0), Format::Yaml).unwrap();
    for round in 0..24 {
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::a_killed_writer_leaves_a_whole_file_and_the_next_one_tidies_up",
            ])
            .env(CHILD, dir.path())
            .spawn()
            .unwrap();
        while fs::metadata(&path).unwrap().modified().unwrap() == before {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the writer ended by itself"
            );
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(round * 317));
        child.kill().unwrap();
        child.wait().unwrap();
        Spec::load(&path).unwrap();
        assert!(
            Registry::load(&[dir.path().into()])
                .resolve(&name())
                .is_ok()
        );
    }
    for leftover in names(dir.path()) {
        let file = fs::File::open(dir.path().join(leftover)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
    }
    write_spec(&path, &spec(1_000_000), Format::Yaml).unwrap();
    assert_eq!(names(dir.path()), ["a.yaml"]);
}
