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
launcher=$(command -v ccache || true)
cmake --preset release -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
cmake --build --preset release --target kvcheck -j"$(nproc)"
kvcheck=build/release/tools/kvcheck/kvcheck

step "the golden files, re-computed and judged"
show 0 "$kvcheck" golden verify golden/data/*.h5

step "a kernel whose window admits one key too many"
show 1 "$kvcheck" run \
  'attention hq=4 hkv=2 l=2 t=33 d=64 q=f16 k=f16 v=f16 out=f16 mask=causal_bottom_right+window:8 data=gauss:1' \
  --impl mutant:window-off-by-one

step "done"
