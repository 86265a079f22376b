//! A plugin that the runtime starts: this test program runs itself again, with the environment and the inherited socket that a
//! runtime would give.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Child, Command, Stdio};

use nri::{Events, PrelaunchError, Runner, RunnerError, Status};
use tokio::net::UnixStream;

use super::common::{Peer, containerd, in_time};
use super::probe::Probe;

/// Starts [`child`] with one end of a socket pair; returns it with the other end.
fn launch(expected: &str) -> (Child, Peer) {
    let (near, far) = StdUnixStream::pair().unwrap();
    // A plain duplicate lacks CLOEXEC, so the child inherits it under the same number.
    let inherited = rustix::io::dup(&far).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["prelaunched::child", "--exact", "--ignored"])
        .env_clear()
        .env("NRI_PLUGIN_NAME", "started")
        .env("NRI_PLUGIN_IDX", "07")
        .env("NRI_PLUGIN_SOCKET", inherited.as_raw_fd().to_string())
        .env("EXPECTED_END", expected)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    near.set_nonblocking(true).unwrap();
    (child, Peer::over(UnixStream::from_std(near).unwrap()))
}

async fn succeeds(mut child: Child) {
    let waited = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert!(in_time("the plugin's end", waited).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs within a process that one of the tests below has started"]
async fn child() {
    let runner = Runner::prelaunched(Probe::subscribing(Events::ALL))
        .unwrap()
        .expect("the environment of a plugin");
    let again = Runner::prelaunched(Probe::subscribing(Events::ALL));
    assert!(
        matches!(again, Err(PrelaunchError::Adopted)),
        "a socket has one owner"
    );
    let (mut status, runtime) = (runner.status(), runner.runtime());
    tokio::spawn(async move {
        status
            .wait_for(|status| *status == Status::Registered)
            .await
            .unwrap();
        runtime.update_containers(Vec::new()).await
    });
    let ended = runner.run(std::future::pending()).await;
    match std::env::var("EXPECTED_END").unwrap().as_str() {
        "orderly" => ended.unwrap(),
        _ => assert!(
            matches!(ended, Err(RunnerError::Session { .. })),
            "{ended:?}"
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prelaunched_plugin_registers_as_it_was_named_and_ends_with_its_connection() {
    let (child, mut peer) = launch("orderly");
    let (stream, registration) = peer.registration().await;
    assert_eq!(
        (&*registration.plugin_name, &*registration.plugin_idx),
        ("started", "07")
    );
    peer.answer(stream).await;
    peer.configure(&containerd("2.2.0")).await.unwrap();
    peer.synchronize(&nri::api::SynchronizeRequest::default())
        .await
        .unwrap();
    in_time(
        "the call by which the plugin shows that it is active",
        peer.runtime.inbox.recv(),
    )
    .await
    .unwrap();
    drop(peer);
    succeeds(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prelaunched_plugin_that_is_dropped_before_it_is_active_ends_with_an_error() {
    let (child, mut peer) = launch("an error");
    peer.registration().await;
    drop(peer);
    succeeds(child).await;
}

#[tokio::test]
async fn without_the_environment_of_a_plugin_there_is_none() {
    assert!(
        Runner::prelaunched(Probe::subscribing(Events::ALL))
            .unwrap()
            .is_none()
    );
}
