#!/bin/sh
# An adapter under gdb, for kvcheck: what gdb prints goes to gdb.log, the adapter's stream stays its own.
#   kvcheck run 'CASE' --limit 1h --impl 'tools/adapters/under_gdb.sh ./my_adapter OPTIONS'
# gdb.log has the backtrace of a crash. Commands of your own: GDB_COMMANDS=FILE.
DEBUGINFOD_URLS='' exec gdb -q -batch -iex 'set logging file gdb.log' -iex 'set logging redirect on' \
  -iex 'set logging enabled on' ${GDB_COMMANDS:+-ix "$GDB_COMMANDS"} -ex run -ex bt --args "$@"
