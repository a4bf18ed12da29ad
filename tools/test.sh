#!/usr/bin/env bash
# Builds and tests kvcheck; ctest's summary of the release build comes last.
#   tools/test.sh           the first block of README.md, which makes the wheel of the Python package
#                           and installs it; then release on all tests but exhaustive ones (every
#                           float of a type, tens of thousands of drawn kernels) and live ones (a
#                           library's findings, histories and model)
#   tools/test.sh --all     these too, and before them the environments of all adapters (some GB), HTML
#                           reports in a browser, the golden files in numpy, clang 19 on all tests,
#                           the fuzz targets, ThreadSanitizer on the fast tests, clang-tidy; both
#                           sanitizers on all fast tests, and on hostile calls from Python; the
#                           package's tests with torch
#   tools/test.sh --leg LEG one of: mlx_lm environments python python_torch golden clang fuzz tsan tidy
#                           asan python_asan bytes (asan on the tests of code that reads foreign bytes
#                           or handles memory by hand) short browser release
# KVCHECK_UNITY in the environment says whether every room is compiled several files at a time (ALL:
# faster once, slower after an edit); not set: ALL in a new build/release, else as it is there. What
# did not run is said with its reason before ctest's summary. A leg that fails ends the short run;
# --all goes on, names the legs that failed, and exits 1. Asks nothing and reads no stdin.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."
export CI=true

legs="mlx_lm python short"
going_on=no
case "${1-}" in
  "") ;;
  --all)
    legs="mlx_lm environments python python_torch golden clang fuzz tsan tidy asan python_asan browser release"
    going_on=yes
    export KVCHECK_SIMD_TARGETS=ALL  # kernels of every instruction set
    ;;
  --leg) ;;
  *)
    sed -n '2,18s/^# //p' "$0" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
launcher=$(command -v ccache || true)

build() {  # PRESET, further options of the build
  local preset=$1
  shift
  if [ "$preset" = release ]; then
    tools/configure_release.sh
  else
    cmake --preset "$preset" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
      -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" ${KVCHECK_UNITY:+-DKVCHECK_UNITY=$KVCHECK_UNITY}
  fi
  cmake --build --preset "$preset" -j"$jobs" "$@" -- -k 0  # every file that does not compile is named
}

run_tests() {  # PRESET, further ctest options
  local preset=$1
  shift
  # One more than processors, since some tests wait for a child that hangs.
  tools/run_ctest.py "$left_out" --test-dir "build/$preset" -j"$((jobs + 1))" --output-on-failure --no-tests=error "$@"
}

fast='^(fast|bytes)$'

# What a whole run leaves out, a line each.
left_out=build/left_out.txt
leave_out() {
  echo "$1"
  echo "$1" >>"$left_out"
}

# Judges the golden files a second time, apart from the C++.
golden_in_numpy() {
  python3 -m venv build/venv
  build/venv/bin/pip install -q --disable-pip-version-check -r golden/make/requirements-check.txt
  build/venv/bin/python golden/make/check_golden.py
}

# The environments in which libraries are asked; their tests are skipped where no package index can be reached.
adapter_environments() {  # NAME...
  local name status
  for name; do
    status=0
    tools/adapters/make_venv.sh "$name" || status=$?
    case $status in
      0) echo "$name: tools/adapters/$name/venv is there" ;;
      3) leave_out "the package index cannot be reached: the tests of tools/adapters/$name" ;;
      *) return "$status" ;;
    esac
  done
}

# The wheel, made and installed as README.md says, and installed for the tests of the package.
python_package() {
  local status=0
  tools/adapters/make_venv.sh tools/python/ || status=$?
  if [ $status = 0 ]; then
    PYTHONDONTWRITEBYTECODE=1 tools/python/venv/bin/python tests/tools/python/readme_block.py || status=$?
  fi
  case $status in
    0)
      tools/python/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall \
        build/python/wheels/kvcheck-*.whl
      echo "tools/python/venv has the package"
      ;;
    3) leave_out "the package index cannot be reached: the wheel, the first block of README.md, the tests of the Python package" ;;
    *) return "$status" ;;
  esac
}

# HTML reports, light and dark, wide and narrow, with axe-core; skipped without the package index or the browser.
reports_in_browser() {
  local status=0 browser=tests/tools/report/browser
  tools/adapters/make_venv.sh $browser/ || status=$?
  if [ $status = 0 ]; then
    build release --target kvcheck
    $browser/venv/bin/python $browser/check_reports.py build/release/tools/kvcheck/kvcheck build/report_screenshots ||
      status=$?
  fi
  case $status in
    0) ;;
    3 | 77) leave_out "no package index, or no browser: HTML reports in a browser" ;;
    *) return "$status" ;;
  esac
}

# Tests of the package that need torch, in that of the adapter torch_sdpa.
python_with_torch() {
  local python=$PWD/tools/adapters/torch_sdpa/venv/bin/python site=$PWD/build/python/torch_site
  if [ ! -x "$python" ] || ! ls build/python/wheels/kvcheck-*.whl >/dev/null 2>&1; then
    leave_out "tools/adapters/torch_sdpa/venv or the wheel is not there: tests of the Python package with torch"
    return 0
  fi
  rm -rf "$site"
  "$python" -m pip install -q --disable-pip-version-check --target "$site" --no-deps build/python/wheels/kvcheck-*.whl
  "$python" -m pip install -q --disable-pip-version-check --target "$site" "$(grep '^pytest==' tools/python/requirements.txt)"
  PYTHONPATH=$site KVCHECK_PYTHON=$python tests/tools/python/run.sh test_device.py
}

hostile_calls_from_python() {
  local status=0
  tests/tools/python/asan.sh || status=$?
  [ $status = 77 ] || return $status
  leave_out "tools/python/venv is not there: hostile calls from Python"
}

tidy() {  # PRESET that compiles the files, git's patterns of them
  local preset=$1 files
  shift
  [ -d "build/$preset" ] || cmake --preset "$preset"
  mapfile -t files < <(git ls-files -- "$@")
  tools/tidy.py "build/$preset" -j "$jobs" "${files[@]}"
}

run_leg() {
  case "$1" in
    mlx_lm) adapter_environments mlx_lm ;;
    environments) adapter_environments torch_sdpa transformers llama_cpp mlx_prefix vllm_mlx vllm lmcache openvino sglang ;;
    python) python_package ;;
    golden) golden_in_numpy ;;
    clang)
      build clang
      run_tests clang -LE '^live$'
      ;;
    fuzz)
      build fuzz
      run_tests fuzz
      ;;
    tsan)
      # The runtime of g++ 12 refuses the address layout of kernels with 32 random bits.
      if setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R tools/test.sh --leg tsan_as_it_is
      else
        run_leg tsan_as_it_is
      fi
      ;;
    tsan_as_it_is)
      build tsan
      run_tests tsan -L "$fast"
      ;;
    tidy)
      tidy tidy '*.cc' ':!tests/project/consumer' ':!fuzz/targets' ':!tools/python'
      tidy fuzz 'fuzz/targets/*.cc'
      ;;
    asan)
      build asan
      run_tests asan -L "$fast"
      ;;
    python_asan) hostile_calls_from_python ;;
    python_torch) python_with_torch ;;
    browser) reports_in_browser ;;
    bytes)
      build asan --target bytes_tests
      run_tests asan -L '^bytes$'
      ;;
    short)
      build release
      leave_out "only tools/test.sh --all: tests labelled exhaustive and live; both sanitizers; kernels of other instruction sets than the baseline and this machine's best; clang, clang-tidy, fuzz targets, ThreadSanitizer, HTML in a browser, other environments"
      run_tests release -LE '^(exhaustive|live)$'
      ;;
    release)
      build release
      run_tests release
      ;;
    *)
      echo "tools/test.sh: no leg named '$1'; --help names them" >&2
      exit 2
      ;;
  esac
}

if [ "${1-}" = --leg ]; then
  run_leg "${2-}"
  exit 0
fi

# Elsewhere than on Debian and Ubuntu, CMake names what it misses.
if command -v apt-get >/dev/null; then
  if [ $going_on = yes ]; then tools/install_packages.sh --all; else tools/install_packages.sh; fi
fi

# Each leg in a process of its own, where any command that fails ends it.
failed=""
mkdir -p build
rm -f "$left_out"
for leg in $legs; do
  if [ "$leg" = release ] && [ -n "$failed" ]; then echo "== legs that failed:$failed"; fi
  printf '\n== %s (at %d s)\n' "$leg" "$SECONDS"
  if ! tools/test.sh --leg "$leg"; then
    [ $going_on = yes ] || exit 1
    failed+=" $leg"
  fi
done
[ -z "$failed" ]
