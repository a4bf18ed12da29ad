#!/usr/bin/env bash
# From a clean clone to a verdict: installs the packages, builds the tool, checks the golden files
# and shows what a failure looks like.
#   tools/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }

# Runs a command and insists on its exit status.
show() {  # STATUS COMMAND...
  local expected=$1 status=0
  shift
  printf '$'
  printf ' %q' "$@"
  printf '\n'
  "$@" || status=$?
  printf 'exit status %d\n' "$status"
  if [ "$status" -ne "$expected" ]; then
    echo "quickstart.sh: expected exit status $expected" >&2
    exit 1
  fi
}

step "packages"
tools/install_packages.sh

step "build of the tool"
tools/configure_release.sh
cmake --build --preset release --target kvcheck -j"$(nproc)"
kvcheck=build/release/tools/kvcheck/kvcheck

step "what MLX and PyTorch answered, judged against the definition"
show 0 "$kvcheck" golden verify -q golden/data/*.h5

step "mlx-lm 0.24.0, whose window admitted one key too many"
show 1 "$kvcheck" run \
  --data 'golden/data/mlx_lm_faults.h5#window_off_by_one.prefill/mlx_lm.0.24.0' --max-print 2

step "a kernel that rounds P to bf16, and does not say so"
show 1 "$kvcheck" run \
  'attention hq=8 hkv=2 l=4 t=129 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1' \
  --plan base=plain_f32 --impl 'simulated:base=plain_f32 p=bf16' --max-print 2

step "done"
