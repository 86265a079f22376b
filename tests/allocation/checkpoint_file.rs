//! What stands where the checkpoint should be.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use gpu_warden::allocation::checkpoint::{CheckpointFile, MAX_BYTES};

use crate::node::{A, B, GPU, Node, assert_conflict, assert_devices, assert_unavailable, pod};

#[tokio::test]
async fn a_kubelet_that_never_wrote_one_has_allocated_nothing() {
    let node = Node::with_pod().await;
    std::fs::remove_file(node.kubelet.checkpoint()).unwrap();
    assert_devices(&node.ask(&pod("p"), "bare").await, &[]);
    assert_conflict(&node.ask(&pod("p"), "c").await, &[A, "uid-of-p"]);
}

#[tokio::test]
async fn without_even_its_directory_nothing_is_known() {
    let node = Node::with_pod().await;
    std::fs::remove_dir_all(node.root.path().join("device-plugins")).unwrap();
    for container in ["c", "bare"] {
        let answer = node.ask(&pod("p"), container).await;
        assert_unavailable(&answer, &["device-plugins", "--kubelet-root"]);
    }
}

#[tokio::test]
async fn neither_source_there_is_unavailable() {
    let mut node = Node::with_pod().await;
    node.kubelet.stop().await.unwrap();
    std::fs::remove_file(node.kubelet.socket()).unwrap();
    std::fs::remove_file(node.kubelet.checkpoint()).unwrap();
    let answer = node.ask(&pod("p"), "c").await;
    assert_unavailable(&answer, &["kubelet.sock", "is the kubelet running"]);
}

#[tokio::test]
async fn a_torn_file_is_unavailable_for_every_container() {
    let node = Node::with_pod().await;
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
    node.kubelet.tear_checkpoint().unwrap();
    for container in ["c", "bare"] {
        let answer = node.ask(&pod("p"), container).await;
        assert_unavailable(&answer, &["kubelet_internal_checkpoint", "EOF"]);
    }
    node.kubelet.write_checkpoint().unwrap();
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn a_file_that_heals_before_the_second_reading_is_good() {
    let node = Node::with_pod().await;
    node.kubelet.tear_checkpoint().unwrap();
    let heal = async {
        while node.kubelet.calls().get == 0 {
            tokio::task::yield_now().await;
        }
        node.kubelet.write_checkpoint().unwrap();
    };
    let p = pod("p");
    let (answer, ()) = tokio::join!(node.ask(&p, "c"), heal);
    assert_devices(&answer, &[A]);
}

#[tokio::test]
async fn bytes_that_no_kubelet_writes_are_unavailable() {
    let node = Node::with_pod().await;
    for bytes in [&b""[..], b"{}", b"\xff\xfe\x00", b"[1,2]", b"null"] {
        node.kubelet.replace_checkpoint(bytes).unwrap();
        let answer = node.ask(&pod("p"), "bare").await;
        assert_unavailable(&answer, &["is no device-manager checkpoint"]);
    }
}

#[tokio::test]
async fn a_checksum_of_another_kubelet_version_does_not_stop_anything() {
    let node = Node::with_pod().await;
    node.kubelet.misbehave(|f| f.foreign_checksum = true);
    node.kubelet.write_checkpoint().unwrap();
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn the_layout_before_1_20_is_read() {
    let node = Node::with_pod().await;
    node.kubelet.misbehave(|f| f.flat_ids = true);
    node.kubelet.write_checkpoint().unwrap();
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_opened_for_reading() {
    let node = Node::with_pod().await;
    let path = node.kubelet.checkpoint();
    let good = path.with_extension("good");
    std::fs::rename(&path, &good).unwrap();
    let refused = || async {
        let answer = node.ask(&pod("p"), "c").await;
        assert_unavailable(&answer, &["is not a regular file"]);
    };

    symlink(&good, &path).unwrap();
    refused().await;
    std::fs::remove_file(&path).unwrap();

    std::fs::create_dir(&path).unwrap();
    refused().await;
    std::fs::remove_dir(&path).unwrap();

    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    refused().await;
    std::fs::remove_file(&path).unwrap();

    std::os::unix::net::UnixListener::bind(&path).unwrap();
    refused().await;
}

#[tokio::test]
async fn a_file_larger_than_the_limit_is_not_read() {
    let node = Node::with_pod().await;
    let file = std::fs::File::create(node.kubelet.checkpoint()).unwrap();
    file.set_len(MAX_BYTES + 1).unwrap();
    let answer = node.ask(&pod("p"), "c").await;
    assert_unavailable(&answer, &["is larger than"]);
}

#[tokio::test]
async fn contents_that_change_within_one_tick_of_the_clock_are_seen() {
    let node = Node::with_pod().await;
    let path = node.kubelet.checkpoint();
    let first = std::fs::read_to_string(&path).unwrap();
    let second = first.replace(A, B);
    let file = CheckpointFile::new(node.root.path());
    for turn in 0..300 {
        // In place, so of the same inode and size, and with the time of a clock of 10 ms.
        let (text, id) = if turn % 2 == 0 {
            (&first, A)
        } else {
            (&second, B)
        };
        std::fs::write(&path, text).unwrap();
        let now = UNIX_EPOCH.elapsed().unwrap().as_millis();
        let tick = Duration::from_millis(u64::try_from(now / 10 * 10).unwrap());
        let written = std::fs::File::open(&path).unwrap();
        written.set_modified(UNIX_EPOCH + tick).unwrap();
        let found = file.read().unwrap().unwrap().lookup("uid-of-p", "c");
        assert!(found[GPU].ids.contains(id), "turn {turn}");
    }
}

#[tokio::test]
async fn an_unchanged_file_is_parsed_once() {
    let node = Node::with_pod().await;
    let file = CheckpointFile::new(node.root.path());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let first = file.read().unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &file.read().unwrap().unwrap()));
    node.kubelet.write_checkpoint().unwrap();
    assert!(!Arc::ptr_eq(&first, &file.read().unwrap().unwrap()));
}
