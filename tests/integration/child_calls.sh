#!/bin/bash
# child_calls.sh PROGRAM: the verbs calls of a child that fork(2) made, on objects of its parent: what they return, and
# that the parent goes on (child_calls.cc). docs/programs.md has the table.
. "$(dirname "$0")/lib.sh"
setup
cp "$1" "$T/child_calls"
start_daemon
two_vdevices direct
on a nobody "$T/child_calls" va "$INDEX_A" >"$T/table" 2>"$T/errors" || fail "$(<"$T/errors") $(<"$T/table")"
cat "$T/table"
