//! The thread that looks again when something may have changed.
//!
//! Owns when to look: on a file event, when asked, and at the latest after the poll interval, since
//! neither NVML nor procfs announce what changes in them. What a look is comes from outside.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;
use tracing::{debug, warn};

/// When to look.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Directories to watch; those that do not exist are tried again at each poll.
    pub directories: Vec<PathBuf>,
    /// At the latest after this time.
    pub poll: Duration,
    /// Quiet time to wait for after an event: a driver that loads makes many nodes at once.
    pub debounce: Duration,
    /// Whether every event in these directories counts, and not only those that can mean a GPU or a
    /// spec: a busy `/dev` is full of terminals.
    pub every_event: bool,
}

/// Events may go on for ever; this many debounce times after the first one, look all the same.
const PATIENCE: u32 = 5;

/// How long dropping waits for a look that is under way. A driver that hangs never returns from it.
const FAREWELL: Duration = Duration::from_millis(500);

/// The thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the watcher's thread can't be started: {0}")]
pub struct WatchError(std::io::Error);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Event,
    Now,
    Stop,
}

/// Asks the watcher to look at once.
#[derive(Debug, Clone)]
pub struct Refresh(Sender<Wake>);

impl Refresh {
    /// Returns immediately; a watcher that has ended is not an error.
    pub fn now(&self) {
        let _ = self.0.send(Wake::Now);
    }
}

/// The running watcher; ends its thread when dropped, or leaves it behind if the driver holds it.
#[derive(Debug)]
pub struct Watcher {
    refresh: Refresh,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts with one look, and publishes what each look finds.
    pub fn start<T: Send + Sync + 'static>(
        schedule: Schedule,
        publish: watch::Sender<Arc<T>>,
        look: impl FnMut() -> T + Send + 'static,
    ) -> Result<Self, WatchError> {
        let (sender, wakes) = mpsc::channel();
        let events = sender.clone();
        let watched = schedule.directories.clone();
        let every = schedule.every_event;
        let notifier = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may stand for lost events, so it counts as one.
            if event.map_or(true, |event| concerns(&event, &watched, every)) {
                let _ = events.send(Wake::Event);
            }
        });
        // Root has 128 inotify instances for everything on a node. Without one changes are seen
        // late; without gpu-warden nothing is guarded.
        let notifier = notifier
            .inspect_err(|error| {
                warn!(%error, poll = ?schedule.poll, "file events can't be watched (fs.inotify.max_user_instances?); changes are seen by the poll alone");
            })
            .ok();
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || {
                Loop {
                    schedule,
                    notifier,
                    missing: Vec::new(),
                }
                .run(&wakes, &publish, look);
            })
            .map_err(WatchError)?;
        Ok(Self {
            refresh: Refresh(sender),
            thread: Some(thread),
        })
    }

    /// A handle that asks for a look.
    pub fn refresh(&self) -> Refresh {
        self.refresh.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.refresh.0.send(Wake::Stop);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let end = Instant::now() + FAREWELL;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        } else {
            warn!("the driver does not answer; its thread is left behind");
        }
    }
}

struct Loop {
    schedule: Schedule,
    notifier: Option<RecommendedWatcher>,
    missing: Vec<PathBuf>,
}

impl Loop {
    fn run<T>(
        mut self,
        wakes: &Receiver<Wake>,
        publish: &watch::Sender<Arc<T>>,
        mut look: impl FnMut() -> T,
    ) {
        self.missing = self.schedule.directories.clone();
        loop {
            self.watch_missing();
            publish.send_replace(Arc::new(look()));
            match wakes.recv_timeout(self.schedule.poll) {
                Ok(Wake::Event) => {
                    if !self.settle(wakes) {
                        return;
                    }
                }
                Ok(Wake::Now) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits until events cease; false when the watcher is to end.
    fn settle(&self, wakes: &Receiver<Wake>) -> bool {
        let end = Instant::now() + self.schedule.debounce * PATIENCE;
        while Instant::now() < end {
            match wakes.recv_timeout(self.schedule.debounce) {
                Ok(Wake::Event) => {}
                Ok(Wake::Now) | Err(RecvTimeoutError::Timeout) => return true,
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// A watched directory that was removed comes back as a new one, so all are checked each time.
    fn watch_missing(&mut self) {
        let Some(notifier) = &mut self.notifier else {
            return;
        };
        for directory in &self.schedule.directories {
            let was_missing = self.missing.contains(directory);
            let is_missing = !directory.is_dir();
            if was_missing && !is_missing {
                match notifier.watch(directory, RecursiveMode::NonRecursive) {
                    Ok(()) => debug!(directory = %directory.display(), "watching"),
                    Err(error) => {
                        warn!(directory = %directory.display(), %error, "not watched; the poll goes on");
                        continue;
                    }
                }
                self.missing.retain(|missing| missing != directory);
            } else if is_missing && !was_missing {
                self.missing.push(directory.clone());
            }
        }
    }
}

/// Whether an event can mean that a GPU or a spec changed, unless `every` one counts.
fn concerns(event: &notify::Event, watched: &[PathBuf], every: bool) -> bool {
    !matches!(event.kind, EventKind::Access(_))
        && (every
            || event.need_rescan()
            || event.paths.is_empty()
            || event.paths.iter().any(|path| is_of_interest(path, watched)))
}

fn is_of_interest(path: &Path, watched: &[PathBuf]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_spec = path
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "json");
    is_spec
        || name.starts_with("nvidia")
        || name == "dri"
        || watched.iter().any(|directory| directory == path)
        || path
            .parent()
            .is_some_and(|parent| parent.ends_with("dri") || parent.ends_with("nvidia-caps"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::host::DeviceNumbers;
    use crate::watch::NodeState;

    const LONG: Duration = Duration::from_secs(60);

    fn state() -> NodeState {
        let numbers = DeviceNumbers::fixed();
        NodeState::unknown("test", numbers)
    }

    /// A watcher over `directories` and a counter of its looks.
    fn counting(directories: Vec<PathBuf>, poll: Duration) -> (Watcher, Arc<AtomicUsize>) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&looks);
        let schedule = Schedule {
            directories,
            poll,
            debounce: Duration::from_millis(30),
            every_event: false,
        };
        let watcher = Watcher::start(schedule, watch::Sender::new(Arc::new(state())), move || {
            counter.fetch_add(1, Ordering::SeqCst);
            state()
        });
        (watcher.unwrap(), looks)
    }

    fn wait_for(looks: &AtomicUsize, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while looks.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < end, "no look {count}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_burst_of_new_nodes_causes_one_look_and_a_terminal_none() {
        let dir = tempfile::tempdir().unwrap();
        let (_watcher, looks) = counting(vec![dir.path().to_owned()], LONG);
        wait_for(&looks, 1);
        for n in 0..20 {
            std::fs::write(dir.path().join(format!("nvidia{n}")), "").unwrap();
        }
        wait_for(&looks, 2);
        std::fs::write(dir.path().join("tty7"), "").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(looks.load(Ordering::SeqCst) <= 3, "a burst is one change");
        std::fs::remove_file(dir.path().join("nvidia3")).unwrap();
        let before = looks.load(Ordering::SeqCst);
        wait_for(&looks, before + 1);
    }

    #[test]
    fn a_directory_that_appears_later_is_watched_from_the_next_poll_on() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("cdi");
        let (_watcher, looks) = counting(vec![later.clone()], Duration::from_millis(20));
        wait_for(&looks, 2);
        std::fs::create_dir(&later).unwrap();
        let before = looks.load(Ordering::SeqCst);
        wait_for(&looks, before + 3);
    }

    #[test]
    fn dropping_does_not_wait_for_a_driver_that_hangs() {
        let schedule = Schedule {
            directories: Vec::new(),
            poll: LONG,
            debounce: LONG,
            every_event: false,
        };
        let hang = || {
            std::thread::sleep(LONG);
            state()
        };
        let begun = Instant::now();
        let publish = watch::Sender::new(Arc::new(state()));
        drop(Watcher::start(schedule, publish, hang).unwrap());
        assert!(begun.elapsed() < FAREWELL * 10);
    }

    #[test]
    fn asking_looks_at_once_and_dropping_ends_the_thread() {
        let (watcher, looks) = counting(Vec::new(), LONG);
        wait_for(&looks, 1);
        watcher.refresh().now();
        wait_for(&looks, 2);
        let refresh = watcher.refresh();
        drop(watcher);
        refresh.now();
        assert_eq!(looks.load(Ordering::SeqCst), 2);
    }
}
