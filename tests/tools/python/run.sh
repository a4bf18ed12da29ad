#!/bin/sh
# Runs tests of the Python package in tools/python/venv, or where KVCHECK_PYTHON names an interpreter that has it.
#   run.sh TEST.py...    exit code 77: the package is not installed there
cd "$(dirname "$0")" || exit 1
python=${KVCHECK_PYTHON:-../../../tools/python/venv/bin/python}
if ! "$python" -c 'import kvcheck._core, pytest' 2>/dev/null; then
  echo "SKIPPED: no kvcheck and pytest in $python (tools/python/install.sh)"
  exit 77
fi
exec "$python" -m pytest -q -p no:cacheprovider "$@"
