#!/bin/sh
# Configures build/release, in which the tool, the Python package and the tests are built.
#   tools/configure_release.sh [OPTION OF CMAKE]...
# A new tree is taken for one that nobody edits in: every room is compiled several files at a time (KVCHECK_UNITY=ALL), and
# kernels for the baseline and this machine's best instruction set (KVCHECK_SIMD_TARGETS=NATIVE). A tree that is there keeps
# what it has. The environment's KVCHECK_UNITY, KVCHECK_SIMD_TARGETS and KVCHECK_BUILD_BENCH come before both. Warnings are errors under g++ 12,
# with which the project is tested.
set -eu
cd "$(dirname "$0")/.."
cache=build/release/CMakeCache.txt
choice() {  # VARIABLE, its value in the environment, its value in a new tree
  kept=
  [ ! -f $cache ] || kept=$(sed -n "s/^$1:[A-Z]*=//p" $cache)
  kept=${2:-$kept}
  echo "-D$1=${kept:-$3}"
}
werror=ON
[ "$(g++ -dumpversion 2>/dev/null)" = 12 ] || werror=OFF
launcher=$(command -v ccache || true)
cmake --preset release -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
  -DKVCHECK_WERROR=$werror "$(choice KVCHECK_UNITY "${KVCHECK_UNITY-}" ALL)" \
  "$(choice KVCHECK_SIMD_TARGETS "${KVCHECK_SIMD_TARGETS-}" NATIVE)" \
  "$(choice KVCHECK_BUILD_BENCH "${KVCHECK_BUILD_BENCH-}" ON)" "$@"
