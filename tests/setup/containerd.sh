#!/usr/bin/env bash
# Provides containerd without installing it, so that no service starts and the machine's own stays
# as it is.
#
# usage: containerd.sh both   unpacks 1.7 and 2.x side by side (.build/containerd/{trixie,sid})
#        containerd.sh one    prints the directory of one that is new enough: that in PATH, else the
#                             distribution's, else Debian's newer one
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

target=$build_dir/containerd
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT

# The Debian mirror in this machine's own apt sources, in whichever format they are written.
debian_mirror() {
    # Lists nothing before the first update.
    [ -n "$(apt-get indextargets --format '$(SITE)')" ] || update_lists
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# Unpacks one .deb of containerd, in whole or not at all.
unpack() { # DEB NAME
    local new=$scratch/unpacked
    mkdir -p "$new" "$target"
    quietly dpkg-deb -x "$1" "$new" || fail "can't unpack $1"
    usable "$new/usr/bin" ||
        fail "containerd of $2 does not run here, or is older than 1.7: $("$new/usr/bin/containerd" --version 2>&1)"
    rm -rf "${target:?}/$2"
    mv "$new" "$target/$2"
    note "containerd $(containerd_version "$target/$2/usr/bin/containerd") is in $target/$2"
}

# containerd of a Debian suite, through lists of its own: the machine's sources stay as they are.
from_debian() { # SUITE MIRROR
    need_root "unpacking containerd of Debian $1"
    [ -e "$keyring" ] || install_packages debian-archive-keyring
    scratch=$(mktemp -d)
    mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$2" "$1" >"$scratch/sources.list"
    local apt=(apt-get -q
        -o "Dir::Etc::sourcelist=$scratch/sources.list" -o Dir::Etc::sourceparts=-
        -o Dir::Etc::preferences=- -o Dir::Etc::preferencesparts=-
        -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch/cache"
        -o APT::Sandbox::User=root)
    note "fetching containerd of Debian $1"
    quietly "${apt[@]}" update || fail "can't read the lists of Debian $1 from $2"
    (cd "$scratch" && quietly "${apt[@]}" download containerd) ||
        fail "can't download containerd of Debian $1 from $2"
    unpack "$scratch"/containerd_*.deb "$1"
    cleanup
}

# containerd of the machine's own sources.
from_distribution() {
    need_root "unpacking the distribution's containerd"
    scratch=$(mktemp -d)
    note "fetching the distribution's containerd"
    (cd "$scratch" && quietly apt-get -q -o APT::Sandbox::User=root download containerd) ||
        fail "can't download the distribution's containerd"
    unpack "$scratch"/containerd_*.deb distribution
    cleanup
}

both() {
    local suite mirror
    for suite in trixie sid; do
        usable "$target/$suite/usr/bin" && continue
        need_apt "containerd of Debian $suite is needed"
        mirror=$(debian_mirror)
        [ -n "$mirror" ] || without_mirror
        from_debian "$suite" "$mirror"
    done
}

# The tests compare two lines of containerd; one distribution has one.
without_mirror() {
    local have
    have=$(candidate containerd)
    fail "the tests need containerd 1.7 and 2.x side by side, which come from Debian's trixie and sid," \
        "but no apt source of this machine is a Debian mirror" \
        "(its own containerd package is ${have:-absent}). Run the tests on Debian," \
        "or unpack the two by hand: $target/trixie/usr/bin (1.7) and $target/sid/usr/bin (2.x)"
}

one() {
    local found mirror
    found=$(command -v containerd || true)
    if [ -n "$found" ] && usable "$(dirname "$found")"; then dirname "$found"; return; fi
    for found in distribution sid trixie; do
        if usable "$target/$found/usr/bin"; then echo "$target/$found/usr/bin"; return; fi
    done
    need_apt "there is no containerd >= 1.7 in PATH"
    [ -n "$(candidate containerd)" ] || update_lists
    if new_enough "$(candidate containerd)"; then
        from_distribution
        echo "$target/distribution/usr/bin"
        return
    fi
    mirror=$(debian_mirror)
    [ -n "$mirror" ] ||
        fail "this machine's apt has no containerd >= 1.7 ($(candidate containerd)) and no Debian mirror"
    from_debian sid "$mirror"
    echo "$target/sid/usr/bin"
}

case ${1:-} in
    both | one) "$1" ;;
    *) fail "usage: containerd.sh both|one" ;;
esac
