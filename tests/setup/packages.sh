#!/usr/bin/env bash
# Installs what tests and demo run besides containerd, as far as it is missing:
# the real runc, a static busybox (it becomes the container images), unshare and nsenter, a linker
# for cargo. With `tests`, also kubectl, whose kustomize renders what is shipped in deploy/, and
# musl for images whose programs load libraries.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Root's PATH may lack these when the caller is not a login shell.
PATH=$PATH:/usr/sbin:/sbin

missing=()
command -v runc >/dev/null || missing+=(runc)
busybox=$(command -v busybox || true)
# ldd succeeds on what is linked dynamically, which a container without libraries can't run.
if [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then missing+=(busybox-static); fi
{ command -v unshare && command -v nsenter; } >/dev/null || missing+=(util-linux)
command -v mount >/dev/null || missing+=(mount)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
if [ "${1:-}" = tests ]; then
    command -v kubectl >/dev/null || missing+=(kubernetes-client)
    command -v musl-gcc >/dev/null || missing+=(musl-tools)
fi

[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
