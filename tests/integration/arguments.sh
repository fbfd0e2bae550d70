#!/bin/bash
# arguments.sh PROGRAM: what calls do with arguments at their limits is what docs/verbs-support.md says (arguments.cc). The
# column of rxe there was printed by the same program in a VM.
. "$(dirname "$0")/lib.sh"
setup
start_daemon
two_vdevices direct
cp "$1" "$T/arguments"
on a nobody "$T/arguments" va "$INDEX_A" >"$T/printed" || fail "it ends with status $?: $(<"$T/printed")"
sed -n '/^## Arguments/,/^## /p' "$(dirname "$0")/../../docs/verbs-support.md" |
  sed -nE 's/^\| `(.*)` \| ([^ ]+) \|.*/\1: \2/p' >"$T/documented"
diff "$T/documented" "$T/printed" >&2 || fail "the table differs (<) from what is printed (>)"
say "$(wc -l <"$T/printed") calls"
