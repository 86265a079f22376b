//! The mux's bound on what waits.

use nri::mux::{ConnectionId, Message, MuxError, QUEUE_BYTES_MAX, Trunk, encode_frames};
use tokio::io::AsyncWriteExt;
use ttrpc::proto::MessageHeader;

use super::common::in_time;

#[tokio::test(flavor = "multi_thread")]
async fn an_unserved_connection_does_not_stop_the_other_until_its_bound_and_then_says_so() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (mut trunk, [_unserved, mut served]) =
        Trunk::open(near, [ConnectionId(1), ConnectionId(2)]);
    let (_reading, mut writing) = tokio::io::split(far);
    let wire = |connection, stream, len: usize| {
        let header = MessageHeader::new_request(stream, u32::try_from(len).unwrap());
        encode_frames(
            ConnectionId(connection),
            &Message {
                header,
                body: vec![0; len],
            }
            .encode(),
        )
    };
    let len_of_each = 8 << 20;
    let bound = u32::try_from(QUEUE_BYTES_MAX / len_of_each).unwrap();
    for round in 0..bound - 1 {
        in_time("a write", writing.write_all(&wire(1, round, len_of_each)))
            .await
            .unwrap();
        in_time("a write", writing.write_all(&wire(2, round, 3)))
            .await
            .unwrap();
        assert_eq!(
            in_time("the other connection", served.inbox.recv())
                .await
                .unwrap()
                .header
                .stream_id,
            round
        );
    }
    let flood =
        tokio::spawn(
            async move { while writing.write_all(&wire(1, 0, len_of_each)).await.is_ok() {} },
        );
    let error = in_time("the end", trunk.closed()).await.unwrap_err();
    assert!(
        matches!(
            error,
            MuxError::Overflow {
                connection: ConnectionId(1)
            }
        ),
        "{error}"
    );
    drop(trunk);
    in_time("the flood's end", flood).await.unwrap();
}
