#!/usr/bin/env bash
# Builds and tests kvcheck; ctest's summary of the release build comes last.
#   tools/test.sh           AddressSanitizer and UBSan on the tests of code that reads foreign bytes or
#                           handles memory by hand, then release on all tests
#   tools/test.sh --all     before these also the environments of all adapters (some GB), the Python
#                           package, the golden files in numpy, clang 19 on all tests, the fuzz
#                           targets, ThreadSanitizer on the fast tests, clang-tidy; both sanitizers
#                           on all fast tests
# The first leg that fails ends the run with its own summary. Asks nothing and reads no stdin.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."
export CI=true

all=no
case "${1-}" in
  "") ;;
  --all) all=yes ;;
  *)
    sed -n '2,9s/^# //p' "$0" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
launcher=$(command -v ccache || true)

# Elsewhere than on Debian and Ubuntu, CMake names what it misses.
if command -v apt-get >/dev/null; then
  if [ $all = yes ]; then tools/install_packages.sh --all; else tools/install_packages.sh; fi
fi

leg() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }

build() {  # PRESET, further options of the build
  local preset=$1
  shift
  cmake --preset "$preset" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"
  cmake --build --preset "$preset" -j"$jobs" "$@"
}

run_tests() {  # PRESET, further ctest options
  local preset=$1
  shift
  ctest --test-dir "build/$preset" -j"$jobs" --output-on-failure --no-tests=error "$@"
}

fast='^(fast|bytes)$'

thread_sanitizer() {
  build tsan
  run_tests tsan -L "$fast"
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
      3) echo "SKIPPED: the tests of tools/adapters/$name, since the package index cannot be reached" ;;
      *) return "$status" ;;
    esac
  done
}

# Installed for its tests, which are skipped where no package index can be reached.
python_package() {
  local status=0
  tools/python/install.sh || status=$?
  case $status in
    0) echo "tools/python/venv has the package" ;;
    3) echo "SKIPPED: the tests of the Python package, since the package index cannot be reached" ;;
    *) return "$status" ;;
  esac
}

tidy() {  # PRESET that builds the files, git's patterns of them
  local preset=$1 files
  shift
  [ -d "build/$preset" ] || cmake --preset "$preset"
  mapfile -t files < <(git ls-files -- "$@")
  # What is dropped counts warnings before the filters: those of system headers.
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 4 -P "$jobs" clang-tidy-19 --quiet -p "build/$preset" \
      2> >(grep -v '^[0-9]* warnings\? generated\.$' >&2) || {
    echo "clang-tidy: see the findings above, in some of ${#files[@]} files" >&2
    return 1
  }
  echo "clang-tidy: nothing found in ${#files[@]} files of the preset $preset"
}

leg "environment of mlx-lm"
adapter_environments mlx_lm

if [ $all = yes ]; then
  leg "environments of PyTorch, transformers and llama.cpp"
  adapter_environments torch_sdpa transformers llama_cpp

  leg "Python package"
  python_package

  leg "golden files, in numpy"
  golden_in_numpy

  leg "clang 19, all tests"
  build clang
  run_tests clang

  leg "fuzz targets"
  build fuzz
  run_tests fuzz

  leg "ThreadSanitizer, fast tests"
  # The runtime of g++ 12 refuses the address layout of kernels with 32 random bits.
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    export -f build run_tests thread_sanitizer
    export jobs launcher fast
    setarch "$(uname -m)" -R bash -euo pipefail -c thread_sanitizer
  else
    thread_sanitizer
  fi

  leg "clang-tidy"
  tidy tidy '*.cc' ':!tests/project/consumer' ':!fuzz/targets' ':!tools/python'
  tidy fuzz 'fuzz/targets/*.cc'
fi

if [ $all = yes ]; then
  leg "AddressSanitizer and UBSan, fast tests"
  build asan
  run_tests asan -L "$fast"
else
  leg "AddressSanitizer and UBSan, tests of bytes and memory"
  build asan --target bytes_tests
  run_tests asan -L '^bytes$'
fi

leg "release, all tests"
build release
run_tests release
