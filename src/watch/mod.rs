//! Keeps what is known of the node fresh: file events and a slow poll → debounced looks → one
//! shared state, and the CDI spec on disk with it. The settings are kept current the same way.

mod look;
mod state;
mod watcher;

pub use look::{Look, NoDirectory};
pub use state::NodeState;
pub use watcher::{Refresh, Schedule, WatchError, Watcher};
