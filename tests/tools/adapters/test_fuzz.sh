#!/bin/sh
# test_fuzz.sh KVCHECK ADAPTERS: drawn cases find nothing in the plain caches, and the token that a broken one loses.
set -u
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT

expect() {  # STATUS IMPL CASES
  "$1" fuzz --impl "$3" --cases "$4" --quiet --limit 120s --shrink-time 20s --out "$found"
  status=$?
  if [ $status -ne "$2" ]; then
    echo "fuzz --impl '$3' ended with $status, $2 is expected" >&2
    exit 1
  fi
}

expect "$1" 0 "$2/tutorial/run" 200
expect "$1" 0 "$2/numpy_example/run" 300
expect "$1" 1 "$2/numpy_example/run --broken" 300
