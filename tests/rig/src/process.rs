//! Long-running programs inside a world: containerd and the program under test.
//!
//! Owns start, signals, restart and the log. The process that tokio holds is `nsenter`, which passes
//! no signals on; so signals go to its one child, the program itself. `nsenter` is never killed: it
//! reaps the program, which is not in the pid namespace of the rig's process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::command::tail;
use crate::world::{OwnGroup as _, only_child};
use crate::{Failure, World};

const PAUSE: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(5);
const SHOWN: usize = 3000;

/// How to start it.
#[derive(Debug, Clone)]
pub struct Launch {
    /// For messages, and the log's file name.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to the environment.
    pub env: Vec<(OsString, OsString)>,
}

impl Launch {
    /// A program without arguments.
    pub fn new(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Starts it in the world.
    pub async fn start(self, world: &World) -> Result<Process, Failure> {
        let log = world.path("log").join(format!("{}.log", self.name));
        let mut process = Process {
            holder: world.holder_pid(),
            launch: self,
            log,
            log_from: 0,
            running: None,
        };
        process.start().await?;
        Ok(process)
    }
}

#[derive(Debug)]
struct Running {
    nsenter: Child,
    pid: Pid,
}

/// A program in a world, running or not.
#[derive(Debug)]
pub struct Process {
    holder: u32,
    launch: Launch,
    log: PathBuf,
    log_from: u64,
    running: Option<Running>,
}

impl Process {
    /// Starts it again, with the same arguments, after it ended or was stopped.
    pub async fn start(&mut self) -> Result<(), Failure> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(Failure::file("open", &self.log))?;
        let also = log.try_clone().map_err(Failure::file("share", &self.log))?;
        let length = log
            .metadata()
            .map_err(Failure::file("look at", &self.log))?;
        self.log_from = length.len();

        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder))
            .args(["--mount", "--pid", "--"])
            .arg(&self.launch.program)
            .args(&self.launch.args)
            .envs(self.launch.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also);
        command.as_std_mut().process_group_of_its_own();
        let mut nsenter = command.spawn().map_err(|source| Failure::Spawn {
            program: self.launch.program.display().to_string(),
            source,
        })?;
        let until = Instant::now() + START;
        loop {
            if let Some(pid) = nsenter.id().and_then(only_child) {
                self.running = Some(Running { nsenter, pid });
                return Ok(());
            }
            let ended = nsenter.try_wait();
            if let Some(status) = ended.map_err(Failure::file("wait for", "nsenter"))? {
                return Err(self.ended(status));
            }
            if Instant::now() > until {
                return Err(self.timeout("its start", START));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As the host counts.
    pub fn host_pid(&self) -> Option<u32> {
        let running = self.running.as_ref()?;
        Some(running.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// As the programs of the world count: what NVML or containerd would report.
    pub fn world_pid(&self) -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.host_pid()?)).ok()?;
        let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
        line.split_whitespace().last()?.parse().ok()
    }

    /// Where stdout and stderr of every run go.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What the present run wrote so far.
    pub fn log(&self) -> Result<String, Failure> {
        let bytes = std::fs::read(&self.log).map_err(Failure::file("read", &self.log))?;
        let from = usize::try_from(self.log_from).unwrap_or(bytes.len());
        let since = bytes.get(from..).unwrap_or_default();
        Ok(String::from_utf8_lossy(since).into_owned())
    }

    /// Waits until the present run has written that text; at once an error if it ends before.
    pub async fn wait_for_log(&mut self, text: &str, within: Duration) -> Result<(), Failure> {
        let until = Instant::now() + within;
        while !self.log()?.contains(text) {
            if let Some(status) = self.ended_with()? {
                return Err(self.ended(status));
            }
            if Instant::now() > until {
                return Err(self.timeout(&format!("`{text}` in the log"), within));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Its exit status, if it has ended by itself.
    pub fn ended_with(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(running) = self.running.as_mut() else {
            return Ok(None);
        };
        let name = &self.launch.name;
        running
            .nsenter
            .try_wait()
            .map_err(Failure::file("wait for", name))
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let Some(running) = &self.running else {
            return Err(Failure::unexpected(&self.launch.name, "is not running"));
        };
        kill_process(running.pid, signal)
            .map_err(|e| Failure::file("signal", &self.launch.name)(e.into()))
    }

    /// SIGTERM, and its exit status; an error if it does not end in time.
    pub async fn stop(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        self.signal(Signal::TERM)?;
        self.wait(within).await
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)?;
        self.wait(START).await.map(drop)
    }

    /// Waits for its end.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let Some(running) = self.running.as_mut() else {
            return Err(Failure::unexpected(&self.launch.name, "is not running"));
        };
        match tokio::time::timeout(within, running.nsenter.wait()).await {
            Ok(status) => {
                let status = status.map_err(Failure::file("wait for", &self.launch.name))?;
                self.running = None;
                Ok(status)
            }
            Err(_) => Err(self.timeout("its end", within)),
        }
    }

    fn ended(&self, status: ExitStatus) -> Failure {
        Failure::Command {
            program: self.launch.name.clone(),
            status: status.to_string(),
            output: self.log_end(),
        }
    }

    fn timeout(&self, what: &str, within: Duration) -> Failure {
        Failure::Timeout {
            what: format!("{}: {what}", self.launch.name),
            within,
            detail: self.log_end(),
        }
    }

    fn log_end(&self) -> String {
        let log = self.log().unwrap_or_default();
        tail(&log, SHOWN).trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running
            && matches!(running.nsenter.try_wait(), Ok(None))
        {
            // Not reaped yet, so the pid is still its own; nsenter ends with it. Fails only when it
            // has just ended.
            let _ = kill_process(running.pid, Signal::KILL);
        }
    }
}
