#!/bin/sh
# Starts the adapter of a folder: `start.sh FOLDER [OPTION...]`, which the folder's own `run` calls. Takes the interpreter
# that KVCHECK_PYTHON names, and no other where it is set: it has to have the packages of requirements.txt, of whatever
# version. Else the folder's venv; else, where the folder needs numpy and msgpack alone, a python3 of the system that has them.
# Exit codes: those of the adapter; 2 when there is no environment for it.
folder=$1
shift
adapters=$(dirname "$0")
name=$(basename "$(cd "$folder" && pwd)")
PYTHONPATH=$adapters/kvcheck_adapter${PYTHONPATH:+:$PYTHONPATH}
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
if [ -n "${KVCHECK_PYTHON:-}" ]; then
  if lacking=$("$KVCHECK_PYTHON" "$adapters/has_packages.py" "$folder" 2>&1); then
    exec "$KVCHECK_PYTHON" -m kvcheck_adapter "$folder/adapter.py" "$@"
  fi
  echo "$name: $KVCHECK_PYTHON of KVCHECK_PYTHON lacks: $lacking; install it there, or unset KVCHECK_PYTHON to take" \
    "the environment of tools/adapters/make_venv.sh $name" >&2
  exit 2
fi
if [ -x "$folder/venv/bin/python" ]; then
  exec "$folder/venv/bin/python" -m kvcheck_adapter "$folder/adapter.py" "$@"
fi
if ! grep -qvE '^(numpy|msgpack)==|^#|^$' "$folder/requirements.txt"; then
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import msgpack, numpy' 2>/dev/null; then
      exec "$python" -m kvcheck_adapter "$folder/adapter.py" "$@"
    fi
  done
fi
echo "$name: its Python environment is missing: make it with tools/adapters/make_venv.sh $name" >&2
exit 2
