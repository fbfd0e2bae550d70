#!/bin/bash
# processes.sh: what each process of the daemon may do, and what happens when one of them is killed.
#
#   +-----------+           +-----------+
#   | va -- eth0|===========|eth0 -- vb |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
setup
WORKERS_END=1  # because they are killed
[[ $DAEMON_USER != root ]] || skip "the daemon runs as root here"

# status PID KEY: a value of its status.
status() { awk -v key="$2:" '$1 == key { print $2 }' "/proc/$1/status"; }
# thread KEY: a value of the status that holds() has copied.
thread() { awk -v key="$1:" '$1 == key { print $2 }' "$T/thread"; }
capabilities() { capsh --decode="$(status "$1" CapEff)" | sed 's/.*=//' | tr , '\n' | tr a-z A-Z | sort; }
listed=$(sed -n 's/.*unsigned{\(CAP_[A-Z_]*\)}.*/\1/p' "$(dirname "$0")/../../vrdmad/privileges.cc" | sort)

# holds PID USER CAPABILITIES: it has these, and no more, in each thread.
holds() {
  local pid=$1 user=$2 wanted=$3 task
  printf '%-16s uid %-6s CapEff %s Seccomp %s NoNewPrivs %s root %s %s\n' "$(<"/proc/$pid/comm")" "$(status "$pid" Uid)" \
    "$(status "$pid" CapEff)" "$(status "$pid" Seccomp)" "$(status "$pid" NoNewPrivs)" "$(readlink "/proc/$pid/root")" \
    "$(readlink "/proc/$pid/ns/net")"
  [[ $(readlink "/proc/$pid/ns/net") == "$(readlink /proc/self/ns/net)" ]] || fail "it is in another network namespace"
  [[ $(capabilities "$pid") == "$wanted" ]] || fail "it has the capabilities $(capabilities "$pid")"
  [[ $(readlink "/proc/$pid/root") == / ]] || fail "it has another root"
  for task in "/proc/$pid/task"/*; do
    cp "$task/status" "$T/thread" 2>/dev/null || continue  # it has ended
    [[ $(sed -n 's/^Uid:\t//p' "$T/thread") == "$user"$'\t'"$user"$'\t'"$user"$'\t'"$user" ]] ||
      fail "a thread has other ids: $(grep ^Uid "$T/thread")"
    [[ -z $(sed -n 's/^Groups:[[:space:]]*//p' "$T/thread") || $user == 0 ]] || fail "a thread has groups"
    [[ $(thread CapEff) == $(status "$pid" CapEff) && $(thread CapPrm) == $(status "$pid" CapEff) ]] ||
      fail "a thread has other capabilities"
    [[ $(thread CapInh) == 0000000000000000 && $(thread CapAmb) == 0000000000000000 ]] ||
      fail "a thread passes capabilities on"
    [[ $(thread NoNewPrivs) == 1 ]] || fail "a thread may gain privileges"
    # Sanitizers need more system calls than the daemon.
    [[ -n ${VRDMA_TEST_PRELOAD:-} || $(thread Seccomp) == 2 ]] || fail "a thread may make any system call"
  done
}

start_daemon
two_vdevices mediated

say "what each process may do"
holds "$DAEMON" "$DAEMON_USER" ""
[[ $(status "$DAEMON" CapBnd) == 0000000000000000 ]] || fail "the daemon may get capabilities by exec"
holds "$(helper broker)" 0 "$listed"
holds "$(helper intake)" "$DAEMON_USER" ""
stopper=$(helper stopper)
holds "$stopper" 0 "$(capabilities "$stopper")"
grep -qvx 'CAP_SYS_PTRACE\|CAP_DAC_OVERRIDE\|CAP_DAC_READ_SEARCH' <(capabilities "$stopper") &&
  fail "the stopper has the capabilities $(capabilities "$stopper")"
[[ $(pgrep -P "$DAEMON" | wc -l) -eq 3 ]] || fail "it has other processes"

say "each helper process executes vrdmad-helper, and no process has the address layout of another"
layout() { awk '/vrdmad/ { print $1; exit }' "/proc/$1/maps"; }
for name in broker intake stopper; do
  [[ $(readlink "/proc/$(helper "$name")/exe") == */vrdmad-helper ]] || fail "the $name executes another program"
done
for process in "$DAEMON" "$(helper broker)" "$(helper intake)" "$(helper stopper)"; do layout "$process"; done >"$T/layouts"
[[ $(grep . "$T/layouts" | sort -u | wc -l) -eq 4 ]] || fail "the layouts are" $(<"$T/layouts")

say "the daemon cannot read what belongs to root"
as_daemon() { setpriv --reuid "$DAEMON_USER" --regid "$DAEMON_USER" --clear-groups "$@"; }
if as_daemon ls "$R/broker" >/dev/null 2>&1; then fail "it reads the list of the broker"; fi
# A sanitizer attaches to its own process.
if [[ -z ${VRDMA_TEST_PRELOAD:-} ]] && as_daemon cat "/proc/$DAEMON/environ" >/dev/null 2>&1; then
  fail "a process of its user reads it"
fi

say "its workers have no other layout than their own"
LIMIT=20 on a nobody ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
for worker in $(workers); do
  [[ $(layout "$worker") != "$(layout "$(helper broker)")" ]] || fail "a worker has the layout of the broker"
done

say "without a broker the daemon ends, and the next one takes over"
tcp_server a nobody ib_write_bw -d va -D 20 --report_gbits
spawn client b nobody ib_write_bw -d vb -D 20 --report_gbits 10.0.0.1
has_session() { [[ $(ctl vdev show vb -o json) == *'"sessions": 1'* ]]; }
wait_until 20 has_session || fail "the client has no session"
for victim in broker intake; do
  kill -9 "$(helper "$victim")"
  wait_until 20 ended "$DAEMON" || fail "the daemon goes on without its $victim"
  wait "$DAEMON" 2>/dev/null || true
  start_daemon
  wait_until 10 has_session || fail "no session is taken over after the end of the $victim"
done
both_end_well ib_write_bw

say "the broker ends with the daemon"
broker=$(helper broker)
kill_daemon
wait_until 10 ended "$broker" || fail "the broker is left"
start_daemon

say "it executes no helper program that other users can change, and none that is missing or ends"
mkdir "$T/copy"
cp "$VRDMAD" "$(dirname "$VRDMAD")/vrdmad-helper" "$T/copy"
# refuses REASON: the copy does not start, and says so. It is executed with the standard streams alone.
refuses() {
  if "$T/copy/vrdmad" --run-dir "$T/other" --state-dir "$T/none" 2>"$T/err" 3>&-; then fail "it starts"; fi
  grep -qF "$1" "$T/err" || { cat "$T/err"; fail "it does not say: $1"; }
}
chmod o+w "$T/copy/vrdmad-helper"
refuses "other users than root can change the program $T/copy/vrdmad-helper"
rm "$T/copy/vrdmad-helper"
refuses "a program is missing: $T/copy/vrdmad-helper"
cp "$(type -P false)" "$T/copy/vrdmad-helper"
refuses "the intake process has ended at its start"
if "$(dirname "$VRDMAD")/vrdmad-helper" broker 2>"$T/err"; then fail "a helper starts without vrdmad"; fi
grep -q 'it is started by vrdmad' "$T/err" || fail "the helper does not say who starts it"

say "a directory of others is not given away"
mkdir "$T/full"
touch "$T/full/file"
if "$VRDMAD" --user "$DAEMON_USER" --run-dir "$T/full" --state-dir "$T/none" 2>"$T/err"; then fail "it starts"; fi
grep -q "$T/full has files of others (file)" "$T/err" || { cat "$T/err"; fail "it does not say why"; }
[[ $(stat -c %u "$T/full") == 0 && $(stat -c %u "$T/full/file") == 0 ]] || fail "it is another user's"
if "$VRDMAD" --user nosuchuser --run-dir "$T/other" --state-dir "$T/none" 2>"$T/err"; then fail "it starts"; fi
grep -q "there is no user 'nosuchuser'" "$T/err" || fail "it does not say which user"
