#!/bin/sh
# Makes a wheel of the package that needs no system package where it is installed, and tries it in an empty environment.
#   tools/python/make_wheel.sh [FOLDER]        FOLDER: where the wheel goes; build/python/wheels where left out, which has no
#                                              other wheel afterwards
# PYTHON names the interpreter it is for (default: that of tools/python/venv). Under Python 3.12 or later the wheel is for
# every later one too (abi3), under an earlier one for that alone. It is built in build/release, so that only the extension
# is compiled anew for another interpreter. In a new build/release kernels are for the baseline and this machine's best
# instruction set, right on every other one but slower: KVCHECK_SIMD_TARGETS=ALL for a wheel that others get.
# Exit codes: 0 made and tried; 3 the package index cannot be reached; else what failed.
set -eu
cd "$(dirname "$0")/../.."
out=${1-}
tools/adapters/make_venv.sh tools/python/ || exit $?
venv=$PWD/tools/python/venv
python=$venv/bin/python
mkdir -p build/python
if [ -n "${PYTHON-}" ]; then
  rm -rf build/python/builder
  "$PYTHON" -m venv build/python/builder
  python=$PWD/build/python/builder/bin/python
  # What builds; the rest may be of versions that an older interpreter has not.
  grep -E '^(nanobind|scikit-build-core)==' tools/python/requirements.txt >build/python/builder/requirements.txt
  "$python" -m pip install -q --disable-pip-version-check -r build/python/builder/requirements.txt || exit 3
fi

rm -rf build/python/raw
PYTHON=$python tools/python/build.sh build/python/raw
if [ -z "$out" ]; then
  out=build/python/wheels
  rm -f "$out"/kvcheck-*.whl
fi
mkdir -p "$out"
# Shared objects that a system of the tag has not come into the wheel, under names of their own.
PATH="$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair -w "$out" build/python/raw/kvcheck-*.whl
wheel=$(realpath "$(ls -t "$out"/kvcheck-*.whl | head -n 1)")

# Nothing of this system but the interpreter: no compiler on the path, none of its settings.
rm -rf build/python/clean
"$python" -m venv build/python/clean
clean=$PWD/build/python/clean/bin
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

size=$(($(stat -c %s "$wheel") / 1000000))
[ "$size" -le 20 ] || echo "make_wheel.sh: warning: the wheel has $size MB, more than 20" >&2
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $wheel in
  *-abi3-*) later=" and later" ;;
  *) later=" only; PYTHON=python3.N tools/python/make_wheel.sh makes one for another" ;;
esac
echo "$wheel: $size MB, for CPython $version$later"
