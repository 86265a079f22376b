//! The allocation of a container, from what a real kubelet wrote and from a stand-in that lives.

#[cfg(test)]
#[path = "allocation/captures.rs"]
mod captures;
#[cfg(test)]
#[path = "allocation/checkpoint_file.rs"]
mod checkpoint_file;
#[cfg(test)]
#[path = "allocation/live.rs"]
mod live;
#[cfg(test)]
#[path = "allocation/misbehaviour.rs"]
mod misbehaviour;
#[cfg(test)]
#[path = "allocation/node.rs"]
mod node;
