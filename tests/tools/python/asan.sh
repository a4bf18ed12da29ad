#!/bin/sh
# Hostile calls (test_hostile.py) of the package built with AddressSanitizer and UBSan, 10,000 of them drawn.
#   tests/tools/python/asan.sh [CALLS]
# Needs tools/python/venv (tools/python/install.sh).
# Exit codes: 0 nothing found; 77 there is no such environment; else what failed, or what a sanitizer found.
set -eu
cd "$(dirname "$0")/../../.."
python=$PWD/tools/python/venv/bin/python
if ! "$python" -c 'import nanobind, pytest' 2>/dev/null; then
  echo "SKIPPED: no nanobind and pytest in $python (tools/python/install.sh)"
  exit 77
fi
# In the tree of the tests, whose objects it consists of.
build=build/asan
mkdir -p build
launcher=$(command -v ccache || true)
cmake --preset asan -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
  -DKVCHECK_BUILD_PYTHON=ON -DPython_EXECUTABLE="$python" \
  -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >build/asan_python.log || { cat build/asan_python.log; exit 1; }
cmake --build "$build" --target _core

site=$build/site
rm -rf "$site"
mkdir -p "$site"
cp -r tools/python/kvcheck "$site/kvcheck"
cp "$build"/tools/python/_core*.so "$site/kvcheck/"
# The interpreter is not built with the sanitizer, so that its runtime is loaded first; what the interpreter itself never
# frees is no finding. Python's own allocator would hide what is read beyond an object.
libraries="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
KVCHECK_HOSTILE_CALLS=${1-10000} PYTHONPATH=$PWD/$site PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 \
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 LD_PRELOAD=$libraries \
  "$python" -X faulthandler -m pytest -q -p no:cacheprovider tests/tools/python/test_hostile.py
