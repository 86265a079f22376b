//! A plugin that notes what it is called with, and behaves as the container's id says.

#![allow(unreachable_pub, missing_debug_implementations)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nri::{Adjusted, Events, Plugin, Refusal, Runtime, api};
use tokio::sync::Notify;

use crate::common::{Peer, Rig, containerd};

pub const UNIMPLEMENTED: i32 = 12;
pub const INTERNAL: i32 = 13;
pub const UNAVAILABLE: i32 = 14;
pub const PERMISSION_DENIED: i32 = 7;
pub const FAILED_PRECONDITION: i32 = 9;
pub const INVALID_ARGUMENT: i32 = 3;

/// Notes what it is called with; container ids say how it behaves.
#[derive(Default)]
pub struct Probe {
    events: AtomicU32,
    calls: Mutex<Vec<String>>,
    pub release: Notify,
}

impl Probe {
    pub fn subscribing(events: Events) -> Arc<Self> {
        Arc::new(Self {
            events: AtomicU32::new(events.bits()),
            ..Self::default()
        })
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[async_trait::async_trait]
impl Plugin for Probe {
    fn events(&self, _: &Runtime) -> Events {
        Events::from_bits(self.events.load(Ordering::SeqCst))
    }

    async fn configure(&self, runtime: &Runtime, config: &str) -> Result<(), Refusal> {
        self.note(format!(
            "configure {} {} {config:?}",
            runtime.name, runtime.version
        ));
        if config == "bad" {
            Err(Refusal::new("no such option"))
        } else {
            Ok(())
        }
    }

    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("synchronize {} {}", pods.len(), containers.len()));
        Ok(vec![api::ContainerUpdate {
            container_id: "updated".into(),
            ..Default::default()
        }])
    }

    async fn create_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<Adjusted, Refusal> {
        self.note(format!("create {}", container.id));
        match container.id.as_str() {
            "refuse" => return Err(Refusal::new("not this one")),
            "hang" => std::future::pending().await,
            "block" => std::thread::sleep(Duration::from_secs(3)),
            "panic" => panic!("probe panics"),
            "wait" => self.release.notified().await,
            _ => {}
        }
        let mut adjusted = Adjusted::default();
        if let Some(len) = container.id.strip_prefix("big ") {
            let value = "x".repeat(len.parse().unwrap());
            adjusted.adjust.env.push(api::KeyValue {
                key: "BIG".into(),
                value,
                ..Default::default()
            });
        }
        Ok(adjusted)
    }

    async fn start_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<(), Refusal> {
        self.note(format!("start {}", container.id));
        if container.id == "refuse" {
            Err(Refusal::new("not started"))
        } else {
            Ok(())
        }
    }

    async fn update_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
        resources: api::LinuxResources,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("update {} {}", container.id, resources.cpu.cpus));
        Ok(vec![api::ContainerUpdate {
            container_id: container.id,
            ..Default::default()
        }])
    }

    async fn stop_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("stop {}", container.id));
        Ok(Vec::new())
    }

    async fn validate_container_adjustment(
        &self,
        request: api::ValidateContainerAdjustmentRequest,
    ) -> Result<(), Refusal> {
        if request.container.id == "foreign" {
            Err(Refusal::new("someone added a device"))
        } else {
            Ok(())
        }
    }

    async fn event(
        &self,
        event: api::Event,
        pod: api::PodSandbox,
        container: Option<api::Container>,
    ) -> Result<(), Refusal> {
        self.note(format!(
            "{event:?} {} {:?}",
            pod.id,
            container.map(|c| c.id)
        ));
        Ok(())
    }
}

pub fn pod(id: &str) -> api::PodSandbox {
    api::PodSandbox {
        id: id.into(),
        ..Default::default()
    }
}

pub async fn active(events: Events) -> (Rig, Peer, Arc<Probe>) {
    let plugin = Probe::subscribing(events);
    let mut rig = Rig::start(Arc::clone(&plugin));
    let peer = rig.accept_active(&containerd("2.4.0-beta+unknown")).await;
    plugin.calls();
    (rig, peer, plugin)
}
