# make demo    the founding case on real containerd, without and with gpu-warden; no GPU needed
# make test    everything that must be right before a change is merged
# make bench   the benchmarks: docs/benchmarks.md says what they measure
#
# Tests and demo need root (namespaces, cgroups, containerd). Only the set-up and the programs that
# need it run as root: cargo itself never does, unless you are root.

CARGO ?= cargo

SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo || echo none)
ifneq ($(SUDO),)
AS_ROOT := --config 'target."cfg(unix)".runner = ["$(SUDO)", "-E"]'
endif

.PHONY: demo test bench lint build-all root
.NOTPARALLEL:

demo: root
	@containerd=$$($(SUDO) tests/setup/setup.sh demo) && \
	$(CARGO) build --quiet --package gpu-warden --package fake-nvml --package gpu-warden-rig && \
	$(CARGO) run --quiet --package gpu-warden-rig $(AS_ROOT) -- --containerd "$$containerd"

test: root
	$(SUDO) tests/setup/setup.sh tests
	$(MAKE) lint
	$(MAKE) build-all
	$(CARGO) test --workspace --no-fail-fast $(AS_ROOT)

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# `cargo test` alone builds neither the fake NVML nor the runtime wrappers of the rig.
build-all:
	$(CARGO) build --workspace

# The fake NVML in release; as root for the device nodes that the real program is measured with.
bench: root
	$(CARGO) build --quiet --release --package fake-nvml
	$(CARGO) bench $(AS_ROOT)

root:
	@[ "$(SUDO)" != none ] || { echo "this needs root, and there is no sudo: run it as root" >&2; exit 3; }
