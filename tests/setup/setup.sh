#!/usr/bin/env bash
# Everything that `make test` and `make demo` need on Debian or Ubuntu. Quick when nothing is to do.
#
# usage: setup.sh [tests]   for the tests
#        setup.sh demo      for the demo; prints the directory of the containerd to use
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

case ${1:-tests} in
    tests) what=both ;;
    demo) what=one ;;
    *) echo "usage: setup.sh [tests|demo]" >&2; exit 2 ;;
esac
bash "$here/packages.sh" "${1:-tests}"
bash "$here/containerd.sh" "$what"
