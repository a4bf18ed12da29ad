#!/bin/sh
# Builds the package from these sources and installs it into tools/python/venv, which it makes.
# Exit codes: 0 it is there; 3 the package index cannot be reached; else what failed.
set -eu
cd "$(dirname "$0")/../.."
tools/adapters/make_venv.sh tools/python/ || exit $?
launcher=$(command -v ccache || true)
CMAKE_C_COMPILER_LAUNCHER=$launcher CMAKE_CXX_COMPILER_LAUNCHER=$launcher \
  tools/python/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation .
