# Shared by the setup scripts: messages, root, quiet apt. To be sourced, not run.

set -euo pipefail

setup_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Git ignores it; tests and the demo look for containerd in here.
build_dir=$(cd "$setup_dir/../.." && pwd)/.build

# Only answers go to stdout.
note() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 3; }

need_root() {
    [ "$(id -u)" = 0 ] || fail "$1 needs root; run this with sudo"
}

need_apt() {
    command -v apt-get >/dev/null 2>&1 ||
        fail "$1, and this machine has no apt; only Debian and Ubuntu are set up by this script"
}

# Runs a command, silent unless it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || tail -n 20 "$log" >&2
    rm -f "$log"
    return "$status"
}

update_lists() {
    # Once a run is enough.
    [ -z "${lists_updated:-}" ] || return 0
    note "updating apt's package lists"
    quietly apt-get -q update || fail "apt-get update failed (see above)"
    lists_updated=yes
}

# The version that apt would install, or nothing.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null |
        sed -n 's/^ *Candidate: //p' | grep -vx '(none)' || true
}

install_packages() {
    need_root "installing $*"
    need_apt "$* must be installed"
    local package
    for package in "$@"; do
        [ -n "$(candidate "$package")" ] || { update_lists; break; }
    done
    note "installing $*"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "$@")
    quietly "${install[@]}" && return
    # Old lists name files that a mirror no longer has.
    [ -z "${lists_updated:-}" ] || fail "apt-get could not install $*"
    update_lists
    quietly "${install[@]}" || fail "apt-get could not install $* (see above)"
}

# The version of the containerd at a path, such as 1.7.24; nothing if there is none that runs.
containerd_version() {
    [ -x "$1" ] || return 0
    "$1" --version 2>/dev/null | awk '{ sub(/^v/, "", $3); print $3; exit }' || true
}

# Whether version $1, a program's or a package's, is at least 1.7: the first with NRI and CDI.
new_enough() {
    local major minor
    IFS=. read -r major minor _ <<<"${1#*:}"
    [[ $major =~ ^[0-9]+$ && $minor =~ ^[0-9]+$ ]] && ((major > 1 || (major == 1 && minor >= 7)))
}

# Whether a directory has a containerd that is new enough, with its client and its shim.
usable() {
    [ -x "$1/ctr" ] && [ -x "$1/containerd-shim-runc-v2" ] &&
        new_enough "$(containerd_version "$1/containerd")"
}
