//! Images that lie: nothing outside the root file system changes, and the hook always ends, soon
//! and without a failure that an image could choose.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gpu_warden::hook::{Container, Request, run};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::rootfs::{ARGUMENTS, Bundle, LIBRARY};

/// Runs the hook on an image changed by `change`.
fn attacked(change: impl Fn(&Bundle)) -> (Bundle, String) {
    let bundle = Bundle::new();
    change(&bundle);
    let start = Instant::now();
    let run = bundle.hook();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(start.elapsed() < Duration::from_secs(10));
    bundle.assert_outside_untouched();
    (bundle, run.stderr)
}

#[test]
fn links_out_of_the_root_lead_to_places_inside() {
    for path in [
        "/etc",
        "/etc/ld.so.cache",
        "/usr/lib64/libcuda.so.1",
        "/dev/dri/by-path",
    ] {
        for up in [false, true] {
            let (bundle, _) = attacked(|bundle| {
                let outside = bundle.outside();
                let target = if up {
                    Path::new("../../../../../../../..").join(outside.strip_prefix("/").unwrap())
                } else {
                    outside
                };
                bundle.replace_by_link(path, target);
            });
            assert!(bundle.outside().join("shadow").exists(), "{path}");
        }
    }
}

#[test]
fn a_cache_that_is_a_link_to_a_host_file_is_replaced_and_the_file_stays() {
    let (bundle, stderr) = attacked(|bundle| {
        bundle.replace_by_link("/etc/ld.so.cache", bundle.outside().join("shadow"));
    });
    assert!(!stderr.contains("ld.so.cache"), "{stderr}");
    let cache = bundle.root("/etc/ld.so.cache");
    assert!(!cache.is_symlink());
    assert!(fs::read(cache).unwrap().starts_with(b"glibc-ld.so.cache"));
}

#[test]
fn an_etc_that_is_the_root_is_written_as_the_loader_would_read_it() {
    let (bundle, _) = attacked(|bundle| bundle.replace_by_link("/etc", "/"));
    assert!(bundle.root("/ld.so.cache").is_file());
}

#[test]
fn files_that_block_or_never_end_are_not_opened() {
    for path in ["/etc/ld.so.cache", LIBRARY] {
        for (kind, device) in [
            (FileType::Fifo, 0),
            (FileType::CharacterDevice, makedev(1, 5)),
            (FileType::Socket, 0),
        ] {
            attacked(|bundle| {
                let path = bundle.root(path);
                let _ = fs::remove_file(&path);
                mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device).unwrap();
            });
        }
    }
}

#[test]
fn a_cache_that_no_loader_would_read_stays_and_is_named() {
    for content in [
        &b""[..],
        b"junk",
        b"glibc-ld.so.cache1.1\xff\xff\xff\xff",
        &[0; 10_000],
    ] {
        let (bundle, stderr) = attacked(|bundle| bundle.put("/etc/ld.so.cache", content));
        assert!(stderr.contains("skipped /etc/ld.so.cache: "), "{stderr}");
        assert_eq!(fs::read(bundle.root("/etc/ld.so.cache")).unwrap(), content);
    }
    let (_, stderr) = attacked(|bundle| {
        let file = fs::File::create(bundle.root("/etc/ld.so.cache")).unwrap();
        file.set_len(1 << 40).unwrap();
    });
    assert!(stderr.contains("longer than"), "{stderr}");
}

#[test]
fn a_prepared_temporary_name_leads_nowhere() {
    let temporary = "/etc/.cdi-gen-hook.tmp";
    let (bundle, stderr) = attacked(|bundle| {
        bundle.replace_by_link(temporary, bundle.outside().join("shadow"));
    });
    assert!(!stderr.contains("ld.so.cache"), "{stderr}");
    assert!(!bundle.root(temporary).is_symlink());
    let (_, stderr) = attacked(|bundle| fs::create_dir(bundle.root(temporary)).unwrap());
    assert!(stderr.contains("skipped /etc/ld.so.cache"), "{stderr}");
}

#[test]
fn links_in_circles_end() {
    let (_, stderr) = attacked(|bundle| {
        bundle.replace_by_link("/etc", "/etc2");
        bundle.replace_by_link("/etc2", "/etc");
        bundle.replace_by_link("/usr/lib64/libcuda.so.1", "libcuda.so.1");
    });
    assert!(stderr.contains("skipped /etc/ld.so.cache"), "{stderr}");
}

/// Runs the hook in a mount namespace in which `mount` has been run.
fn mounted(mount: &str) -> (Bundle, String) {
    let bundle = Bundle::new();
    let script = format!(
        "cd '{}' && {mount} && exec \"$@\"",
        bundle.path("").display()
    );
    let run = bundle.hook_by(&["unshare", "-m", "sh", "-c", &script, "sh"], &ARGUMENTS);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    bundle.assert_outside_untouched();
    (bundle, run.stderr)
}

#[test]
fn nothing_is_written_through_a_mount() {
    let (bundle, stderr) = mounted("mount --bind outside rootfs/etc");
    assert!(
        stderr.contains("skipped /etc/ld.so.cache: a mount lies there"),
        "{stderr}"
    );
    assert!(bundle.root("/usr/lib64/libcuda.so.1").is_symlink());
    let (bundle, stderr) =
        mounted("cp -r rootfs/usr/lib64 volume && mount --bind volume rootfs/usr/lib64");
    assert!(
        stderr.contains("to libcuda.so.570.1: a mount lies there"),
        "{stderr}"
    );
    assert!(!bundle.path("volume/libcuda.so.1").is_symlink());
}

#[test]
fn the_host_s_dev_is_never_changed() {
    let bundle = Bundle::new();
    let link = "/dev/cdi-gen-hook-test";
    let script = format!(
        "mount --bind /dev '{}' && exec \"$@\"",
        bundle.root("/dev").display()
    );
    let argument = format!("--link=null::{link}");
    let run = bundle.hook_by(&["unshare", "-m", "sh", "-c", &script, "sh"], &[&argument]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("/dev is the host's"), "{}", run.stderr);
    assert!(!Path::new(link).is_symlink());
}

#[test]
fn a_root_file_system_that_is_the_host_s_is_left_alone() {
    let bundle = Bundle::new();
    bundle.configure(Path::new("/"));
    let run = bundle.hook_by(&[], &["--link=sh::/bin/cdi-gen-hook-test"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("skipped everything"), "{}", run.stderr);
    assert!(!Path::new("/bin/cdi-gen-hook-test").is_symlink());
}

/// What may be at a path.
#[derive(Debug, Clone, Copy)]
enum Thing {
    Nothing,
    Junk,
    Directory,
    Fifo,
    LinkOutside,
    LinkUp,
    LinkToRoot,
    LinkToItself,
    LinkToEtc,
}

fn thing() -> impl Strategy<Value = Thing> {
    prop::sample::select(vec![
        Thing::Nothing,
        Thing::Junk,
        Thing::Directory,
        Thing::Fifo,
        Thing::LinkOutside,
        Thing::LinkUp,
        Thing::LinkToRoot,
        Thing::LinkToItself,
        Thing::LinkToEtc,
    ])
}

const PLACES: [&str; 12] = [
    "/etc",
    "/etc/ld.so.cache",
    "/etc/.cdi-gen-hook.tmp",
    "/usr",
    "/usr/lib64",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib64/.cdi-gen-hook.tmp",
    "/lib64",
    "/dev",
    "/dev/dri",
    "/dev/dri/by-path",
    "/proc",
];

fn place(bundle: &Bundle, path: &str, thing: Thing) {
    let target = match thing {
        Thing::LinkOutside => bundle.outside(),
        Thing::LinkUp => "../../../../../outside".into(),
        Thing::LinkToRoot => "/".into(),
        Thing::LinkToItself => path.into(),
        Thing::LinkToEtc => "/etc".into(),
        other => {
            let path = bundle.root(path);
            if !path.parent().is_some_and(Path::is_dir) {
                return;
            }
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir_all(&path);
            let _ = match other {
                Thing::Junk => fs::write(&path, "junk"),
                Thing::Directory => fs::create_dir(&path),
                Thing::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)
                    .map_err(Into::into),
                _ => Ok(()),
            };
            return;
        }
    };
    bundle.replace_by_link(path, target);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_lies_where_nothing_outside_changes(
        things in prop::collection::vec((0..PLACES.len(), thing()), 1..6),
    ) {
        let bundle = Bundle::new();
        // Deeper places first: what lies above them may be a link to the outside.
        let mut things = things;
        things.sort_by_key(|(index, _)| std::cmp::Reverse(PLACES[*index].matches('/').count()));
        things.dedup_by_key(|(index, _)| *index);
        for (index, thing) in &things {
            place(&bundle, PLACES[*index], *thing);
        }
        let arguments: Vec<_> = ARGUMENTS[..3].iter().map(|&text| text.to_owned()).collect();
        let container = Container { root: bundle.root("/"), procfs_masked: false };
        run(&Request::parse(&arguments).unwrap(), &container).unwrap();
        bundle.assert_outside_untouched();
    }
}
