//! A kubelet that misbehaves on its socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_warden_rig::kubelet::{Calls, RateLimit, Style};

use crate::node::{
    A, B, BUDGET, GPU, Node, assert_conflict, assert_devices, assert_unavailable, pod,
};

const SHORT: Duration = Duration::from_millis(150);
/// What a loaded machine may add.
const SLACK: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_under_the_rate_limit_are_all_served() {
    let node = Arc::new(Node::with_pod().await);
    node.kubelet
        .misbehave(|f| f.rate_limit = Some(RateLimit::KUBELET));
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let node = Arc::clone(&node);
            let (container, expected) = if n % 2 == 0 {
                ("c", &[A][..])
            } else {
                ("bare", &[][..])
            };
            tokio::spawn(async move {
                let answer = node.ask(&pod("p"), container).await;
                assert_devices(&answer, expected);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(node.kubelet.calls().rejected > 0, "the limit was not hit");
}

#[tokio::test]
async fn ten_callers_behind_a_spent_bucket_are_served_within_the_budget() {
    let node = Arc::new(Node::with_pod().await);
    node.kubelet
        .misbehave(|f| f.rate_limit = Some(RateLimit::KUBELET));
    for _ in 0..10 {
        assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
    }
    let ask = || {
        let node = Arc::clone(&node);
        tokio::spawn(async move { node.ask(&pod("p"), "c").await })
    };
    let start = Instant::now();
    let tasks: Vec<_> = (0..10).map(|_| ask()).collect();
    for task in tasks {
        assert_devices(&task.await.unwrap(), &[A]);
    }
    assert!(start.elapsed() < BUDGET);
    assert!(node.kubelet.calls().rejected > 0, "the limit was not hit");
}

#[tokio::test]
async fn a_rate_limit_that_never_gives_way_ends_with_the_budget() {
    let node = Node::with_pod().await;
    let nothing = RateLimit {
        per_second: 0.0,
        burst: 0.0,
    };
    node.kubelet.misbehave(|f| f.rate_limit = Some(nothing));
    let start = Instant::now();
    let answer = node.ask_within(SHORT, &pod("p"), "bare").await;
    assert_unavailable(&answer, &["rate limit", "default/p", "kubelet.sock"]);
    assert!(start.elapsed() < SHORT + SLACK);
    let tried = node.kubelet.calls().rejected;
    assert!((3..=15).contains(&tried), "{tried} tries in {SHORT:?}");
}

#[tokio::test]
async fn the_empty_answers_after_a_restart_prove_nothing() {
    let mut node = Node::with_pod().await;
    node.kubelet
        .misbehave(|f| f.empty_after_start = Duration::from_millis(600));
    for disabled in [false, true] {
        node.kubelet.misbehave(|f| f.get_disabled = disabled);
        node.kubelet.stop().await.unwrap();
        node.kubelet.start_again().await.unwrap();
        let answer = node.ask(&pod("p"), "c").await;
        assert_conflict(&answer, &[A, "default/p/c", "just restarted"]);
        tokio::time::sleep(Duration::from_millis(620)).await;
        assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
    }
}

#[tokio::test]
async fn the_order_of_answers_does_not_matter() {
    let node = Node::with_pod().await;
    let p = pod("p");
    node.kubelet
        .allocate(&p, "two", GPU, &[A, B], Style::EnvVar)
        .unwrap();
    for disabled in [false, true] {
        node.kubelet.misbehave(|f| {
            f.shuffle = true;
            f.get_disabled = disabled;
        });
        for _ in 0..6 {
            assert_devices(&node.ask(&p, "two").await, &[A, B]);
        }
    }
}

#[tokio::test]
async fn a_lasting_disagreement_is_a_conflict_after_one_more_reading() {
    let node = Node::with_pod().await;
    node.kubelet
        .misbehave(|f| f.disagree = Some(vec![B.to_owned()]));
    let answer = node.ask(&pod("p"), "c").await;
    assert_conflict(&answer, &[A, B, "default/p/c", "uid-of-p"]);
    assert_eq!(node.kubelet.calls().get, 2);
}

#[tokio::test]
async fn a_passing_disagreement_is_read_over() {
    let node = Node::with_pod().await;
    node.kubelet
        .misbehave(|f| f.disagree = Some(vec![B.to_owned()]));
    let heal = async {
        while node.kubelet.calls().get == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        node.kubelet.misbehave(|f| f.disagree = None);
    };
    let p = pod("p");
    let (answer, ()) = tokio::join!(node.ask(&p, "c"), heal);
    assert_devices(&answer, &[A]);
}

#[tokio::test]
async fn without_get_list_serves_until_the_next_restart() {
    let mut node = Node::with_pod().await;
    node.kubelet.misbehave(|f| f.get_disabled = true);
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
    assert_devices(&node.ask(&pod("p"), "bare").await, &[]);
    assert_devices(&node.ask(&pod("stranger"), "c").await, &[]);
    let expected = Calls {
        get: 1,
        list: 3,
        rejected: 0,
    };
    assert_eq!(node.kubelet.calls(), expected);

    node.kubelet.misbehave(|f| f.get_disabled = false);
    node.kubelet.stop().await.unwrap();
    node.kubelet.start_again().await.unwrap();
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
    assert_eq!(node.kubelet.calls().get, 2);
    assert_eq!(node.kubelet.calls().list, 3);
}

#[tokio::test]
async fn an_answer_about_another_pod_is_not_believed() {
    let node = Node::with_pod().await;
    node.kubelet.misbehave(|f| f.wrong_pod = true);
    let answer = node.ask(&pod("p"), "c").await;
    assert_conflict(&answer, &["answered about default/p-other"]);
    let answer = node.ask(&pod("p"), "bare").await;
    assert_unavailable(&answer, &["answered about default/p-other"]);
}

#[tokio::test]
async fn a_kubelet_that_hangs_costs_the_budget_and_no_more() {
    let node = Node::with_pod().await;
    node.kubelet.misbehave(|f| f.hang = true);
    for budget in [SHORT, Duration::from_millis(800)] {
        let start = Instant::now();
        let answer = node.ask_within(budget, &pod("p"), "bare").await;
        assert_unavailable(&answer, &["did not answer", "kubelet.sock"]);
        assert!(start.elapsed() < budget + SLACK);
        let answer = node.ask_within(budget, &pod("p"), "c").await;
        assert_conflict(&answer, &[A, "did not answer"]);
    }
    node.kubelet.misbehave(|f| f.hang = false);
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn a_slow_kubelet_is_waited_for() {
    let node = Node::with_pod().await;
    node.kubelet
        .misbehave(|f| f.delay = Duration::from_millis(200));
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn a_deadline_that_has_passed_is_an_error_at_once() {
    let node = Node::with_pod().await;
    for container in ["c", "bare"] {
        let answer = node.ask_within(Duration::ZERO, &pod("p"), container).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    assert_eq!(node.kubelet.calls(), Calls::default());
}

#[tokio::test]
async fn what_is_no_socket_is_named() {
    let mut node = Node::with_pod().await;
    node.kubelet.stop().await.unwrap();
    std::fs::remove_file(node.kubelet.socket()).unwrap();
    let answer = node.ask(&pod("p"), "bare").await;
    assert_unavailable(&answer, &["kubelet.sock", "--kubelet-root"]);
    std::fs::write(node.kubelet.socket(), "").unwrap();
    let answer = node.ask(&pod("p"), "bare").await;
    assert_unavailable(&answer, &["kubelet.sock is not a socket"]);
    node.kubelet.start_again().await.unwrap();
    assert_devices(&node.ask(&pod("p"), "bare").await, &[]);
}

#[tokio::test]
async fn a_peer_that_speaks_no_grpc_is_an_error_and_forgotten() {
    use std::io::Write as _;
    let mut node = Node::with_pod().await;
    node.kubelet.stop().await.unwrap();
    std::fs::remove_file(node.kubelet.socket()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(node.kubelet.socket()).unwrap();
    let peer = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut connection, _) = listener.accept().unwrap();
            connection.write_all(b"HTTP/1.1 400 no\r\n\r\n").unwrap();
        }
    });
    let answer = node.ask(&pod("p"), "bare").await;
    assert_unavailable(&answer, &["can't talk to the kubelet", "kubelet.sock"]);
    peer.join().unwrap();
    node.kubelet.start_again().await.unwrap();
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn a_device_plugin_answer_that_is_garbled_is_unavailable() {
    let node = Node::with_pod().await;
    let bad = pod("bad");
    node.kubelet
        .allocate(&bad, "c", GPU, &[B], Style::Garbled)
        .unwrap();
    let answer = node.ask(&bad, "c").await;
    assert_unavailable(&answer, &["AllocResp", "default/bad/c"]);
    assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
}
