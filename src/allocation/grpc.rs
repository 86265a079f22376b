//! gRPC bodies through rust-protobuf, so that one protobuf implementation serves ttrpc and gRPC.

use std::marker::PhantomData;

use bytes::{Buf, BufMut};
use protobuf::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A tonic codec that sends `T` and receives `U`.
#[derive(Debug, Clone, Copy)]
pub struct ProtobufCodec<T, U>(PhantomData<fn(T) -> U>);

impl<T, U> Default for ProtobufCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message, U: Message> Codec for ProtobufCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<T: Message, U: Message> Encoder for ProtobufCodec<T, U> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let bytes = item
            .write_to_bytes()
            .map_err(|e| Status::internal(e.to_string()))?;
        out.put_slice(&bytes);
        Ok(())
    }
}

impl<T: Message, U: Message> Decoder for ProtobufCodec<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, body: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::parse_from_reader(&mut body.reader())
            .map(Some)
            .map_err(|e| Status::internal(e.to_string()))
    }
}
