//! Images and a driver that really run: the machine's own glibc or Debian's musl, a program that
//! opens `libcuda.so.1` by name, and a `libcuda` with one function.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const VERSION: &str = "570.133.20";

const LIBCUDA: &str = "int cuInit(unsigned flags) { return 42 + (int)flags; }";

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { printf("absent: %s\n", dlerror()); return 7; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    if (!init) { printf("no cuInit\n"); return 8; }
    printf("cuInit=%d\n", init(0));
    return 0;
}
"#;

/// The C library of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libc {
    Glibc,
    Musl,
}

impl Libc {
    fn compiler(self) -> &'static str {
        match self {
            Self::Glibc => "cc",
            Self::Musl => "musl-gcc",
        }
    }
}

fn compile(libc: Libc, dir: &Path, source: &str, output: &Path, flags: &[&str]) {
    let file = dir.join("source.c");
    fs::write(&file, source).unwrap();
    fs::create_dir_all(output.parent().unwrap()).unwrap();
    let done = Command::new(libc.compiler())
        .arg("-o")
        .args([output, file.as_path()])
        .args(flags)
        .status();
    assert!(
        done.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{}: {done:?}; tests/setup/setup.sh installs it",
        libc.compiler()
    );
}

/// The library without which nothing counts as a driver, beside `libcuda`.
pub(crate) fn nvml(libc: Libc, root: &Path, directory: &str) {
    let output = root
        .join(directory.trim_start_matches('/'))
        .join(format!("libnvidia-ml.so.{VERSION}"));
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"];
    compile(
        libc,
        root,
        "int nvmlInit(void) { return 0; }",
        &output,
        &flags,
    );
}

/// A driver root with `libcuda` in `directory` (inside it, absolute).
pub(crate) fn driver(libc: Libc, root: &Path, directory: &str) {
    let output = root
        .join(directory.trim_start_matches('/'))
        .join(format!("libcuda.so.{VERSION}"));
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(libc, root, LIBCUDA, &output, &flags);
}

/// A root file system with a C library, a shell for looking around, and `/bin/cuda`.
pub(crate) fn image(libc: Libc, root: &Path) {
    for dir in ["etc", "bin", "dev", "proc", "sys", "tmp", "usr/lib"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let program = root.join("bin/cuda");
    compile(libc, root, PROGRAM, &program, &["-ldl"]);
    fs::remove_file(root.join("source.c")).unwrap();
    fs::copy(busybox(), root.join("bin/sh")).unwrap();
    match libc {
        Libc::Glibc => {
            for file in glibc_files(&program) {
                let inside = root.join(file.strip_prefix("/").unwrap());
                fs::create_dir_all(inside.parent().unwrap()).unwrap();
                fs::copy(&file, inside).unwrap();
            }
        }
        Libc::Musl => {
            let loader = format!("ld-musl-{}.so.1", std::env::consts::ARCH);
            fs::create_dir_all(root.join("lib")).unwrap();
            fs::copy(
                Path::new("/lib").join(&loader),
                root.join("lib").join(&loader),
            )
            .unwrap();
        }
    }
}

fn busybox() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("busybox"))
        .find(|file| file.exists());
    found.unwrap_or_else(|| panic!("there is no busybox; tests/setup/setup.sh installs it"))
}

/// The loader and the libraries of a program, as the machine's own loader names them.
fn glibc_files(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let files: Vec<_> = text
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    assert!(files.len() >= 2, "{text}");
    files
}
