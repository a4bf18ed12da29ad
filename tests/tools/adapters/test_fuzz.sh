#!/bin/sh
# test_fuzz.sh KVCHECK ADAPTERS: drawn cases find nothing in the plain caches, and the token that a broken one loses; what is
# judged is said before it is, with a warning where it is not what is pinned.
set -u
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT

expect() {  # KVCHECK STATUS IMPL CASES [OPTION]
  "$1" fuzz --impl "$3" --cases "$4" ${5:+"$5"} --quiet --limit 120s --shrink-time 20s --out "$found"
  status=$?
  if [ $status -ne "$2" ]; then
    echo "fuzz --impl '$3' ended with $status, $2 is expected" >&2
    exit 1
  fi
}

expect "$1" 0 "$2/tutorial/run" 200 --strict
expect "$1" 0 "$2/numpy_example/run" 300 --strict  # a right adapter passes
expect "$1" 1 "$2/numpy_example/run --broken" 300

# A tutorial for a library of version 2.0, before a python that has 1.5 of it.
mkdir -p "$found/packages/some_library-1.5.dist-info"
printf 'Metadata-Version: 2.1\nName: some-library\nVersion: 1.5\n' >"$found/packages/some_library-1.5.dist-info/METADATA"
cp -r "$2/tutorial" "$found/tutorial"
echo 'some-library==2.0' >"$found/tutorial/requirements.txt"
for python in python3 /usr/bin/python3; do
  "$python" -c 'import msgpack, numpy' 2>/dev/null && break
done
for command in "fuzz --cases 3" "gate --fuzz-cases 0 --suite $2/../suites/linear.cases"; do
  for quiet in "" --quiet; do
    # shellcheck disable=SC2086
    KVCHECK_PYTHON=$python PYTHONPATH=$found/packages "$1" $command $quiet --limit 120s --out "$found" \
      --impl "$2/start.sh $found/tutorial" 2>"$found/said" >"$found/report"
    said=$(head -n 1 "$found/said")
    [ -n "$quiet" ] || case $said in
      *"tutorial"*" is judged") said=$(sed -n 2p "$found/said") ;;
      *) echo "kvcheck $command began with: $said" >&2; exit 1 ;;
    esac
    case $said in
      *": warning: some-library 1.5 is judged, 2.0 is pinned") ;;
      *) echo "kvcheck $command $quiet warned of: $said" >&2; exit 1 ;;
    esac
  done
done
