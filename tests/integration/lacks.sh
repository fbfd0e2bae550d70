#!/bin/bash
# lacks.sh PROGRAM: a program that lacks descriptors or address space in the middle of verbs calls (lacks.cc).
. "$(dirname "$0")/lib.sh"
setup
start_daemon
two_vdevices mediated
cp "$1" "$T/lacks"
on a nobody "$T/lacks" va files >"$T/lacks.log" 2>&1 || fail "descriptors: $(<"$T/lacks.log")"
grep -qxF 'vrdma: a vdevice cannot be used: this program has no more file descriptors (ulimit -n)' "$T/lacks.log" ||
  fail "the library does not say why there is no vdevice: $(<"$T/lacks.log")"
before=$(holdings)
# AddressSanitizer itself needs address space without end.
[[ -n ${VRDMA_TEST_PRELOAD:-} ]] || on a nobody "$T/lacks" va space >"$T/lacks.log" 2>&1 || fail "address space: $(<"$T/lacks.log")"
wait_until 20 holds_only "$before" || fail "vrdmad holds more than before: $before, then $(holdings)"
