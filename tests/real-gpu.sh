#!/usr/bin/env bash
# Runs cdi-gen against a real driver and collects everything as one more node fixture.
#
#   cargo build --release && tests/real-gpu.sh [OUT]
#
# Nothing is built here and nothing outside OUT is written. Takes well under ten minutes: each step
# has a limit. The exit status is 0 when every step ended as expected. OUT then holds
#   steps/       stdout, stderr, exit status and seconds of every command
#   node/        the fixture: procfs and sysfs of the driver, device nodes and driver files as lists,
#                the topology for the fake NVML, and the spec as golden.yaml
#   summary.txt  one line a step
# GPU UUIDs are in it; serial numbers and host names are not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-${OUT:-real-gpu}}
bin=${CDI_GEN:-target/release/cdi-gen}
limit=${STEP_LIMIT:-45}
driver_root=${DRIVER_ROOT:-/}

if [ ! -x "$bin" ]; then
    echo "$bin is missing: build it first (cargo build --release), or name it in CDI_GEN" >&2
    exit 2
fi
mkdir -p "$out/steps" "$out/node" "$out/cdi/etc" "$out/cdi/run"
: >"$out/summary.txt"
failed=0

# step NAME EXPECTED COMMAND...: EXPECTED is a list of exit statuses, such as "0 1".
step() {
    local name=$1 expected=$2 status=0 began
    shift 2
    began=$(date +%s.%N)
    timeout "$limit" "$@" >"$out/steps/$name.out" 2>"$out/steps/$name.err" || status=$?
    local took
    took=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { printf "%.3f", b - a }')
    echo "$status" >"$out/steps/$name.status"
    local verdict=ok
    case " $expected " in
        *" $status "*) ;;
        *) verdict="NOT AS EXPECTED ($expected)" failed=1 ;;
    esac
    printf '%-24s exit %s  %s s  %s\n' "$name" "$status" "$took" "$verdict" | tee -a "$out/summary.txt"
}

spec=$out/cdi/run/nvidia.com-gpu.yaml
dirs=$out/cdi/etc,$out/cdi/run
roots=(--driver-root "$driver_root" --dev-root "${DEV_ROOT:-/}")

# --- what the host is ---
step uname 0 uname -srm
step nvidia-smi "0 9 124 127" nvidia-smi -L
step nvidia-smi-query "0 9 124 127" nvidia-smi \
    --query-gpu=index,uuid,name,pci.bus_id,mig.mode.current,driver_version --format=csv,noheader

# --- generate, twice, and from the second source ---
step generate 0 "$bin" generate "${roots[@]}" --output "$spec" -v
step generate-again 0 "$bin" generate "${roots[@]}" --output "$spec" -v
step generate-names 0 "$bin" generate "${roots[@]}" --output - \
    --device-name-strategy uuid,index,type-index --all-device
step generate-procfs "0 1" "$bin" generate "${roots[@]}" --nvml-library /nonexistent --output - -v
step dry-run 0 "$bin" generate "${roots[@]}" --output "$spec" --dry-run

# --- the file, checked in every way ---
step validate 0 "$bin" validate --strict "$spec"
step list 0 "$bin" list --cdi-dir "$dirs" -o json
step check 0 "$bin" check "${roots[@]}" --cdi-dir "$dirs" -o json
step check-table 0 "$bin" check "${roots[@]}" --cdi-dir "$dirs"
step diff 0 "$bin" diff "${roots[@]}" "$spec"
step check-host "0 1" "$bin" check "${roots[@]}" -o json
name=$("$bin" list --cdi-dir "$dirs" | awk 'NR == 2 { print $1 }')
step explain 0 "$bin" explain "${name:-nvidia.com/gpu=none}" --cdi-dir "$dirs" -o json
step explain-unknown 1 "$bin" explain nvidia.com/gpu=GPU-none --cdi-dir "$dirs"

# --- a seeded fault must be seen on real numbers too ---
cp "$spec" "$out/drifted.yaml"
mkdir -p "$out/cdi/drifted"
sed 's|^    - path: /dev/nvidia-uvm$|&\n      major: 1\n      minor: 3|' "$spec" \
    >"$out/cdi/drifted/nvidia.com-gpu.yaml"
step check-drifted 1 "$bin" check "${roots[@]}" --cdi-dir "$out/cdi/drifted" -o json
grep -q '"major-drift"' "$out/steps/check-drifted.out" || {
    echo "the seeded drift was not found" | tee -a "$out/summary.txt"
    failed=1
}

# --- the other generator, where it is installed ---
if command -v nvidia-ctk >/dev/null; then
    step ctk-generate "0 1" nvidia-ctk cdi generate --output "$out/ctk.yaml"
    if [ -s "$out/ctk.yaml" ]; then
        step ctk-validate "0 1" "$bin" validate "$out/ctk.yaml" -o json
        step ctk-diff "0 1" "$bin" diff "$spec" "$out/ctk.yaml" -o json
    fi
fi

# --- the fixture ---
node=$out/node
mkdir -p "$node/proc" "$node/sys"
cp /proc/devices "$node/proc/devices"
# procfs files have no size, so they are read one by one.
if [ -d /proc/driver/nvidia ]; then
    find /proc/driver/nvidia /proc/driver/nvidia-caps -type f 2>/dev/null | while read -r file; do
        mkdir -p "$node$(dirname "$file")"
        cat "$file" >"$node$file" 2>/dev/null || true
    done || true
fi
for card in /sys/class/drm/card* /sys/class/drm/renderD*; do
    [ -r "$card/dev" ] || continue
    mkdir -p "$node$card/device"
    cat "$card/dev" >"$node$card/dev"
    cat "$card/device/vendor" >"$node$card/device/vendor" 2>/dev/null || true
    pci=$(basename "$(readlink -f "$card/device")")
    mkdir -p "$node/sys/bus/pci/devices/$pci/drm/$(basename "$card")"
    cat "$card/dev" >"$node/sys/bus/pci/devices/$pci/drm/$(basename "$card")/dev"
done
# Type, numbers in hexadecimal, mode, owner, path.
find /dev -maxdepth 3 \( -path '/dev/nvidia*' -o -path '/dev/dri/*' -o -path '/dev/char/195:*' \) \
    -exec stat -c '%F %t:%T %a %u:%g %N' {} + >"$node/nodes.txt" 2>/dev/null || true
version=$(sed -n 's/^NVRM version:.* \([0-9][0-9]*\(\.[0-9][0-9]*\)\{1,3\}\) .*/\1/p' \
    /proc/driver/nvidia/version 2>/dev/null | head -n 1) || true
find "${driver_root%/}/usr" "${driver_root%/}/lib" "${driver_root%/}/lib64" "${driver_root%/}/etc" \
    \( -name "*.so.${version:-none}" -o -name 'libcuda.so*' -o -name 'libnvidia-ml.so*' \
    -o -name 'nvidia-smi' -o -name 'nvidia-cuda-mps-*' -o -name '*nvidia*.json' \
    -o -name 'nvidia.icd' -o -path "*firmware/nvidia/${version:-none}/*" \) \
    -exec stat -c '%F %s %a %N' {} + 2>/dev/null | sort -u >"$node/files.txt" || true
cp "$spec" "$node/golden.yaml"
# nvidia-smi's table and procfs's minors, as the fake NVML's topology.
awk -F', *' -v version="$version" '
    function minor_of(bus,    file, line, found) {
        found = -1
        file = "/proc/driver/nvidia/gpus/" tolower(substr(bus, 5)) "/information"
        while ((getline line < file) > 0)
            if (line ~ /^Device Minor:/) { sub(/^[^0-9]*/, "", line); found = line }
        close(file)
        return found
    }
    BEGIN { printf "{\n  \"driver_version\": \"%s\",\n  \"gpus\": [", version }
    NF >= 5 {
        printf "%s\n    {\"uuid\": \"%s\", \"name\": \"%s\", \"minor\": %d, \"pci\": \"%s\", \"mig\": %d}",
            (count++ ? "," : ""), $2, $3, minor_of($4), $4, ($5 == "Enabled")
    }
    END { print "\n  ]\n}" }
' "$out/steps/nvidia-smi-query.out" >"$node/topology.json"

if [ "$failed" = 0 ]; then
    echo "all steps as expected; the fixture is in $node" | tee -a "$out/summary.txt"
else
    echo "some step was not as expected; see $out/steps" | tee -a "$out/summary.txt"
fi
exit "$failed"
