#!/bin/sh
# Builds the package from these sources, in build/release, and installs it into tools/python/venv, which it makes.
# Exit codes: 0 it is there; 3 the package index cannot be reached; else what failed.
set -eu
cd "$(dirname "$0")/../.."
tools/adapters/make_venv.sh tools/python/ || exit $?
mkdir -p build/python
rm -rf build/python/raw
tools/python/build.sh build/python/raw
tools/python/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall build/python/raw/kvcheck-*.whl
