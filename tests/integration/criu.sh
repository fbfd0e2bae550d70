# shellcheck shell=bash
# Functions for tests that source lib.sh before: programs are dumped and restored by CRIU, and pairs of
# vrdma_takeover_flow, NAME-a and NAME-b, that meet by the named pipes $T/NAME.a and $T/NAME.b.
#
# CRIU is of Debian 13, unpacked and run by its own dynamic linker: that of Debian 12 does not start on new kernels.
#
# A program that CRIU has made anew is an orphan. Its number is free when it is reaped, for which init may take seconds, so
# this shell does it (36: PR_SET_CHILD_SUBREAPER). It has ctest's log open, which CRIU refuses if it grows between dump and
# restore.
if [[ -z ${REAPS_ORPHANS:-} ]]; then
  REAPS_ORPHANS=1 exec python3 -c '
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.closerange(3, 256)
os.execv("/bin/bash", ["bash", *sys.argv[1:]])' "$0" "$@"
fi

need_criu() {
  local status=0
  [[ -e $BUILD/lib/criu/vrdma_plugin.so ]] || skip "the plugin is not built: a sanitizer, or another processor"
  CRIU=$("$(dirname "$0")/../interop/images/root" trixie criu 2>"$T/root.log") || status=$?
  [[ $status -ne 77 ]] || skip "$(<"$T/root.log")"
  [[ $status -eq 0 ]] || fail "no CRIU of Debian 13: $(<"$T/root.log")"
}
# criu NAMESPACE WORDS...
criu() {
  $(enter "$1") env VRDMA_RUN_DIR="$R" \
    "$CRIU"/usr/lib64/ld-linux-x86-64.so.2 --library-path "$CRIU/usr/lib/x86_64-linux-gnu" "$CRIU/usr/sbin/criu" \
    "${@:2}" --libdir "$BUILD/lib/criu"
}
criu_runs() { # NAMESPACE
  criu "$1" check >"$T/check.log" 2>&1 || skip "CRIU does not run here: $(grep -m 1 Error "$T/check.log" || head -1 "$T/check.log")"
}

dump_in() { # NAMESPACE NAME [OPTION...]: false: it failed
  rm -rf "$T/image"
  mkdir "$T/image"
  [[ -z ${ROOM:-} ]] || mount -t tmpfs -o "size=$ROOM" none "$T/image"
  criu "$1" dump -t "${PID[$2]}" -D "$T/image" -o "$T/dump.log" -v4 "${@:3}"
}
dumped_in() { # NAMESPACE NAME [OPTION...]
  dump_in "$@" || fail "$2 cannot be dumped: $(grep -m 3 -E 'Error|vrdma:' "$T/dump.log")"
}
restore_in() { criu "$1" restore -d -D "$T/image" -o "$T/restore.log" -v4; }  # NAMESPACE
restored_in() { # NAMESPACE NAME
  restore_in "$1" || fail "$2 cannot be restored: $(grep -m 3 -E 'Error|vrdma:' "$T/restore.log")"
}
# CRIU makes a process with the number that it had.
has_gone() { [[ ! -e /proc/$1 ]]; }
killed() {
  wait_until 10 ended "${PID[$1]}" || fail "$1 lives"
  wait "${PID[$1]}" 2>/dev/null || true
  wait_until 10 has_gone "${PID[$1]}" || fail "$1 remains a zombie"
}
counted() { od -An -v -t u8 -N 16 "$T/$1.progress" | xargs; }
has_done() { # NAME SENT RECEIVED
  local now
  read -ra now <<<"$(counted "$1")"
  ! ended "${PID[$1]}" || fail "$1 has ended: $(<"$T/$1.log")"
  [[ ${now[0]} -ge $2 && ${now[1]} -ge $3 ]]
}
# goes_on NAME...: each of them sends and receives 300 more messages.
goes_on() {
  local name before
  for name in "$@"; do
    read -ra before <<<"$(counted "$name")"
    wait_until 20 has_done "$name" $((before[0] + 300)) $((before[1] + 300)) ||
      fail "$name does not go on: $(counted "$name") after ${before[*]}; $(<"$T/$name.log")"
  done
}
# over NAME: both end, and each has received what the other one has sent.
over() {
  local end
  for end in a b; do kill "${PID[$1-$end]}"; done
  for end in a b; do
    wait_until 20 ended "${PID[$1-$end]}" || fail "$1-$end does not end: $(<"$T/$1-$end.log")"
    grep -qE '^[0-9]+ sent, [0-9]+ received$' "$T/$1-$end.log" || fail "$1-$end: $(<"$T/$1-$end.log")"
    wait "${PID[$1-$end]}" 2>/dev/null || true
    unset "PID[$1-$end]"
  done
  rm "$T/$1".[ab]
}
