#!/bin/sh
# Makes a wheel of the package that needs no system package where it is installed, and tries it in an empty environment.
#   tools/python/make_wheel.sh [FOLDER]        FOLDER: where the wheel goes; build/python/wheels where left out
# PYTHON names the interpreter it is for (default: that of tools/python/venv). Under Python 3.12 or later the wheel is for
# every later one too (abi3), under an earlier one for that alone.
# Exit codes: 0 made and tried; 3 the package index cannot be reached; else what failed.
set -eu
cd "$(dirname "$0")/../.."
out=${1-build/python/wheels}
tools/adapters/make_venv.sh tools/python/ || exit $?
venv=$PWD/tools/python/venv
python=$venv/bin/python
if [ -n "${PYTHON-}" ]; then
  rm -rf build/python/builder
  "$PYTHON" -m venv build/python/builder
  python=$PWD/build/python/builder/bin/python
  "$python" -m pip install -q --disable-pip-version-check -r tools/python/requirements.txt
fi

rm -rf build/python/raw
"$python" -m pip wheel . --no-deps --no-build-isolation -q --disable-pip-version-check -w build/python/raw
mkdir -p "$out"
# Shared objects that a system of the tag has not come into the wheel, under names of their own.
PATH="$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair -w "$out" build/python/raw/kvcheck-*.whl
wheel=$(ls -t "$out"/kvcheck-*.whl | head -n 1)
size=$(($(stat -c %s "$wheel") / 1000000))
if [ "$size" -gt 20 ]; then
  echo "make_wheel.sh: $wheel has $size MB, more than 20" >&2
  exit 1
fi

# Nothing of this system but the interpreter: no compiler on the path, none of its settings.
rm -rf build/python/clean
"$python" -m venv build/python/clean
clean=$PWD/build/python/clean/bin
wheel=$(realpath "$wheel")
cd build/python
env -i PATH="$clean" HOME="${HOME-/}" "$clean/python" -m pip install -q --disable-pip-version-check "$wheel"
env -i PATH="$clean" "$clean/python" - <<'END'
import numpy as np
import kvcheck
from kvcheck.testing import assert_attention_close
case = kvcheck.cases.attention(hq=4, hkv=2, l=9, t=17, d=16, mask="causal_bottom_right")
out = case.answer("simulated:base=plain_f32", plan="plain_f32")["out"]
print(assert_attention_close(out, case.q, case.k, case.v, causal=True, plan="plain_f32"), end="")
assert kvcheck.judge_attention(out, case.q, case.k, case.v, plan="plain_f32").outcome == "FAIL"
END
env -i PATH="$clean" "$clean/kvcheck" gate --quiet --fuzz-cases 100
echo "$wheel: $size MB"
