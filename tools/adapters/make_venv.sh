#!/bin/sh
# Makes tools/adapters/NAME/venv from tools/adapters/NAME/requirements.txt, and then from requirements-alone.txt, where there
# is one, without what these ask for: engines that want a GPU's packages. Does nothing when it is up to date. With a slash in
# it the argument is any folder.
#   tools/adapters/make_venv.sh NAME|FOLDER
# Exit codes: 0 it is there; 2 wrong usage, or this system cannot make one; 3 the package index cannot be reached, or has
# not what is asked for.
set -u
adapters=$(cd "$(dirname "$0")" && pwd)
case ${1-} in
  */*) folder=$1 ;;
  *) folder=$adapters/${1-} ;;
esac
if [ $# -ne 1 ] || [ ! -f "$folder/requirements.txt" ]; then
  echo "usage: make_venv.sh NAME, NAME a folder with requirements.txt in $adapters, or the path of such a folder" >&2
  exit 2
fi
venv=$folder/venv
made=$venv/requirements.txt  # what it was made from, written last
if cat "$folder"/requirements*.txt | cmp -s - "$made"; then
  exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rm -rf "$venv"
# A system's own python3 where it has the module venv, so that nothing depends on a shell's settings.
for python in "${PYTHON:-python3}" /usr/bin/python3; do
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  python=
done
if [ -z "$python" ] || ! "$python" -m venv "$venv" >"$log" 2>&1; then
  cat "$log" >&2
  echo "make_venv.sh: no venv for $1: needs Python >= 3.11 with the modules venv and ensurepip" \
    "(Debian: apt-get install python3-venv)" >&2
  rm -rf "$venv"
  exit 2
fi
install() {
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --retries 2 "$@" >>"$log" 2>&1
}
if ! install -r "$folder/requirements.txt" ||
  { [ -f "$folder/requirements-alone.txt" ] && ! install --no-deps -r "$folder/requirements-alone.txt"; }; then
  tail -n 5 "$log" >&2
  echo "make_venv.sh: the packages of $folder/requirements.txt could not be installed:" \
    "see the lines above; without a package index there is no venv for $1" >&2
  rm -rf "$venv"
  exit 3
fi
cat "$folder"/requirements*.txt >"$made"
