#!/bin/sh
# Builds the wheel of the package for this machine from the objects of build/release, so that what the tool was built from
# is not compiled twice.
#   tools/python/build.sh FOLDER     FOLDER: where the wheel goes
# PYTHON names the interpreter it is for, which has nanobind and scikit-build-core; default: that of tools/python/venv.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-$PWD/tools/python/venv/bin/python}
made=$PWD/build/python/prebuilt
rm -rf "$made"
tools/configure_release.sh -DKVCHECK_BUILD_PYTHON=ON -UPython_* -U_Python_* -UPYTHON_* "-DPython_EXECUTABLE=$python" \
  "-Dnanobind_DIR=$("$python" -m nanobind --cmake_dir)" >build/python/configure.log 2>&1 || {
  cat build/python/configure.log >&2
  exit 1
}
cmake --build build/release --target _core kvcheck
cmake --install build/release --component python --prefix "$made/kvcheck" >build/python/install.log
# The extension's folder is that of the module, whatever the settings of pyproject.toml install it as.
"$python" -m pip wheel . --no-deps --no-build-isolation -q --disable-pip-version-check -w "$1" \
  -C cmake.source-dir=tools/python/prebuilt -C "cmake.define.KVCHECK_PREBUILT=$made/kvcheck" -C build.targets= -C build-dir=build/python/wheel_tree
