#!/bin/sh
# Builds a wheel of the package for this machine in build/release, from the objects that the tool is built from.
#   tools/python/build.sh FOLDER     FOLDER: where the wheel goes
# PYTHON: the interpreter that it is for, which has nanobind and scikit-build-core; default: that of tools/python/venv.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-$PWD/tools/python/venv/bin/python}
made=$PWD/build/python/prebuilt
mkdir -p build/python
# What CMake has found of another interpreter is forgotten.
tools/configure_release.sh -U 'Python_*' -U '_Python_*' -U 'nanobind_*' -U 'NB_*' -DKVCHECK_BUILD_PYTHON=ON \
  "-DPython_EXECUTABLE=$python" "-Dnanobind_DIR=$("$python" -m nanobind --cmake_dir)" >build/python/configure.log 2>&1 || {
  cat build/python/configure.log >&2
  exit 1
}
cmake --build build/release --target _core kvcheck
rm -rf "$made"
cmake --install build/release --component python --strip --prefix "$made" >build/python/install.log
"$python" -m pip wheel . --no-deps --no-build-isolation -q --disable-pip-version-check -w "$1" \
  -C cmake.source-dir=tools/python/prebuilt -C "cmake.define.KVCHECK_PREBUILT=$made" \
  -C build-dir=build/python/prebuilt_tree
