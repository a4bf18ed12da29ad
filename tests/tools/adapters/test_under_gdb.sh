#!/bin/sh
# test_under_gdb.sh KVCHECK ADAPTERS EXAMPLE: an adapter under gdb answers as it does alone, and what gdb prints goes to a file.
# Skipped (77) where there is no gdb, or where it may not trace.
set -u
gdb -q -batch -ex run --args true 2>&1 | grep -q 'exited normally' || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
"$1" run 'cache layout=ring:w=2 k=f32 dk=8 data=tokens:1; new A rows=1; append A 3' --limit 5m \
  --impl "$2/under_gdb.sh $3" || exit 1
test -f gdb.log
