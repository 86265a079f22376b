//! The way from the plugin to the runtime outside of requests.
//!
//! Owns the place where a session leaves its client for as long as it is registered.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

use crate::api::{ContainerUpdate, UpdateContainersRequest};
use crate::service::RuntimeClient;

/// The runtime serves updates under the lock that serialises all plugins.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Slot(watch::Sender<Option<Client>>);

#[derive(Clone)]
struct Client(RuntimeClient);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self(watch::channel(None).0)
    }

    pub(crate) fn handle(&self) -> RuntimeHandle {
        RuntimeHandle(self.0.subscribe())
    }

    pub(super) fn fill(&self, client: RuntimeClient) {
        self.0.send_replace(Some(Client(client)));
    }

    pub(super) fn clear(&self) {
        self.0.send_replace(None);
    }
}

/// Calls the runtime on the plugin's own initiative, over whatever connection the runner has at the moment.
#[derive(Debug, Clone)]
pub struct RuntimeHandle(watch::Receiver<Option<Client>>);

/// Why a call to the runtime failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeHandleError {
    /// The plugin is not registered at the moment.
    #[error("UpdateContainers: no connection to the container runtime")]
    NotConnected,
    /// The runtime refused, or the connection ended.
    #[error("UpdateContainers: {0}")]
    Failed(String),
}

impl RuntimeHandle {
    /// Changes resources of containers that exist; returns those which the runtime could not change.
    ///
    /// Never call it from within a [`crate::Plugin`] method: the runtime holds its lock until the method returns, and both
    /// would wait until a timeout ends it.
    pub async fn update_containers(
        &self,
        update: Vec<ContainerUpdate>,
    ) -> Result<Vec<ContainerUpdate>, RuntimeHandleError> {
        let Some(Client(client)) = self.0.borrow().clone() else {
            return Err(RuntimeHandleError::NotConnected);
        };
        let request = UpdateContainersRequest {
            update,
            ..Default::default()
        };
        let answer = client
            .update_containers(ttrpc::context::with_duration(UPDATE_TIMEOUT), &request)
            .await;
        answer
            .map(|response| response.failed)
            .map_err(|error| RuntimeHandleError::Failed(error.to_string()))
    }
}
