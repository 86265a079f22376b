//! What the library remembers between calls.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::topology::{Gpu, GpuField, MigDevice, Topology, code};

static STATE: Mutex<State> = Mutex::new(State {
    text: String::new(),
    topology: None,
    sessions: 0,
    calls: BTreeMap::new(),
});

struct State {
    text: String,
    topology: Option<Topology>,
    /// Init counts, as in NVML.
    sessions: u32,
    calls: BTreeMap<(usize, GpuField), usize>,
}

/// What a function tells.
pub(crate) enum Answer {
    Text(Vec<u8>),
    Number(u32),
    Nothing,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn read(&mut self) -> Result<(), u32> {
        let path = std::env::var_os("FAKE_NVML_TOPOLOGY").ok_or(code::DRIVER_NOT_LOADED)?;
        let complain = |reason: String| {
            // The caller sees a mere number; whoever wrote the topology needs the reason.
            let _ = writeln!(
                std::io::stderr(),
                "fake-nvml: {}: {reason}",
                path.to_string_lossy()
            );
            code::UNKNOWN
        };
        let text = std::fs::read_to_string(&path).map_err(|error| complain(error.to_string()))?;
        if self.topology.is_none() || self.text != text {
            self.topology =
                Some(serde_json::from_str(&text).map_err(|error| complain(error.to_string()))?);
            self.text = text;
            self.calls.clear();
        }
        Ok(())
    }

    fn topology(&self) -> Result<&Topology, u32> {
        self.topology.as_ref().ok_or(code::UNINITIALIZED)
    }

    fn fails(&self, function: &str) -> Result<(), u32> {
        match self.topology()?.errors.get(function) {
            Some(failure) => Err(failure.0),
            None => Ok(()),
        }
    }
}

pub(crate) fn init(function: &str) -> Result<(), u32> {
    let delay = {
        let mut state = state();
        state.read()?;
        state.topology()?.init_delay_ms
    };
    std::thread::sleep(Duration::from_millis(delay));
    let mut state = state();
    state.fails(function)?;
    state.sessions += 1;
    Ok(())
}

pub(crate) fn shutdown() -> Result<(), u32> {
    let mut state = state();
    state.sessions = state.sessions.checked_sub(1).ok_or(code::UNINITIALIZED)?;
    Ok(())
}

/// What a function tells, of the system or of one GPU.
pub(crate) fn answer(function: &str, of: Option<(usize, GpuField)>) -> Result<Answer, u32> {
    let mut state = state();
    if state.sessions == 0 {
        return Err(code::UNINITIALIZED);
    }
    if function == "nvmlDeviceGetCount_v2" {
        state.read()?;
    }
    state.fails(function)?;
    let Some((index, field)) = of else {
        let topology = state.topology()?;
        return Ok(match function {
            "nvmlDeviceGetCount_v2" => Answer::Number(
                topology
                    .count
                    .unwrap_or(u32::try_from(topology.gpus.len()).map_err(|_| code::UNKNOWN)?),
            ),
            "nvmlSystemGetNVMLVersion" => topology
                .nvml_version
                .as_ref()
                .map_or(Answer::Nothing, |text| Answer::Text(text.bytes())),
            _ => Answer::Text(topology.driver_version.bytes()),
        });
    };
    let calls = state.calls.entry((index, field)).or_default();
    let call = *calls;
    *calls += 1;
    let topology = state.topology()?;
    let gpu = topology.gpus.get(index).ok_or(code::INVALID_ARGUMENT)?;
    if let Some(failure) = gpu.errors.get(function) {
        return Err(failure.0);
    }
    Ok(value(gpu, field, call).unwrap_or(Answer::Nothing))
}

fn value(gpu: &Gpu, field: GpuField, call: usize) -> Option<Answer> {
    let (text, number) = match field {
        GpuField::Exists => return None,
        GpuField::Uuid => (Some(&gpu.uuid), None),
        GpuField::Name => (Some(&gpu.name), None),
        GpuField::Pci => (Some(&gpu.pci), None),
        GpuField::Minor => (None, Some(&gpu.minor)),
        GpuField::Mig => (None, gpu.mig.as_ref()),
        GpuField::MigSlots => {
            let slots = u32::try_from(gpu.mig_devices.len()).ok()?;
            return gpu.mig.is_some().then_some(Answer::Number(slots));
        }
    };
    match (text, number) {
        (Some(series), _) => series.at(call).map(|text| Answer::Text(text.bytes())),
        (_, Some(series)) => series.at(call).copied().map(Answer::Number),
        _ => None,
    }
}

/// What a function tells of the MIG device in a slot of a GPU.
pub(crate) fn answer_mig(
    function: &str,
    (gpu, slot): (usize, usize),
    field: impl Fn(&MigDevice) -> Answer,
) -> Result<Answer, u32> {
    let state = state();
    if state.sessions == 0 {
        return Err(code::UNINITIALIZED);
    }
    state.fails(function)?;
    let gpu = state
        .topology()?
        .gpus
        .get(gpu)
        .ok_or(code::INVALID_ARGUMENT)?;
    let slot = gpu.mig_devices.get(slot).ok_or(code::INVALID_ARGUMENT)?;
    let device = slot.as_ref().ok_or(code::NOT_FOUND)?;
    match device.errors.get(function) {
        Some(failure) => Err(failure.0),
        None => Ok(field(device)),
    }
}
