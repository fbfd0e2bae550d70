#!/bin/bash
# workers.sh FLOW: a worker for each tenant that programs use, and what is left of its sessions when it is killed.
#
#   +-----------+           +-----------+
#   | va -- eth0|           |eth0 -- vb |   of tenant red
#   | wa -- eth0|===========|eth0 -- wb |   of tenant blue
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
setup
cp "$1" "$T/lib/flow"
WORKERS_END=1  # because they are killed
need_worker_processes
[[ $DAEMON_USER != root ]] || skip "the daemon runs as root here"
start_daemon
netns_add c
loose c eth0
vdev_create vc c eth0
LIMIT=20 on c nobody ibv_devices | grep -q vc || fail "vc is not listed"
[[ -z $(workers) ]] || fail "a vdevice that no program uses has a worker"
two_vdevices direct --no-direct
vdev_create wa a eth0 --tenant blue --no-direct
vdev_create wb b eth0 --tenant blue --no-direct

count() { workers | wc -l; }
sessions() { ctl vdev show "$1" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["sessions"])'; }
has_sessions() { [[ $(sessions va) -eq $1 && $(sessions wa) -eq $2 ]]; }

say "each tenant has a worker of its own"
begin_flow red va vb 18515
wait_until 20 has_sessions 1 0 || fail "red has no session"
wait_until 20 is_served red-b || fail "red-b has no worker"
[[ $(count) -eq 1 ]] || fail "programs that list all vdevices start the workers of all tenants"
red=$(worker_of red-b)
begin_flow blue wa wb 18516
wait_until 20 has_sessions 1 1 || fail "blue has no session"
wait_until 20 is_served blue-b || fail "blue-b has no worker"
[[ $(count) -eq 2 ]] || fail "there are $(count) workers for two tenants"
blue=$(worker_of blue-b)
[[ -n $red && -n $blue && $red != "$blue" ]] || fail "red has the worker '$red', blue '$blue'"

say "what a worker may do"
status() { awk -v key="$2:" '$1 == key { print $2 }' "/proc/$1/status"; }
[[ $(status "$red" Uid) -ge 1879048192 && $(status "$blue" Uid) -ge 1879048192 ]] || fail "they have users of the host"
[[ $(status "$red" Uid) != "$(status "$blue" Uid)" ]] || fail "they have the same user"
for worker in $red $blue; do
  printf '%-14s uid %-6s CapEff %s CapBnd %s Seccomp %s NoNewPrivs %s %s root: %s\n' "$(<"/proc/$worker/comm")" \
    "$(status "$worker" Uid)" "$(status "$worker" CapEff)" "$(status "$worker" CapBnd)" "$(status "$worker" Seccomp)" \
    "$(status "$worker" NoNewPrivs)" "$(readlink "/proc/$worker/ns/net")" "$(ls -A "/proc/$worker/root" | wc -l) entries"
  [[ $(readlink "/proc/$worker/ns/net") != "$(readlink /proc/self/ns/net)" ]] || fail "it is in the host's network"
  [[ $(readlink "/proc/$worker/ns/net") == "$(readlink "/proc/$blue/ns/net")" ]] || fail "it has a network namespace"
  [[ -z $(ls -A "/proc/$worker/root") ]] || fail "it sees files"
  [[ $(status "$worker" Groups) == "" ]] || fail "it has groups"
  [[ $(status "$worker" CapBnd) == 0000000000000000 ]] || fail "it may get capabilities"
  for task in "/proc/$worker/task"/*; do
    task=${task#/proc/}
    [[ $(status "$task" Uid) == "$(status "$worker" Uid)" ]] || fail "a thread has the uid $(status "$task" Uid)"
    [[ $(status "$task" CapEff) == 0000000000000000 && $(status "$task" CapPrm) == 0000000000000000 ]] ||
      fail "a thread has capabilities"
    [[ $(status "$task" NoNewPrivs) == 1 && $(status "$task" Seccomp) == 2 ]] || fail "a thread is not confined"
  done
  # Sockets, memory, and the files of its sessions and their programs: nothing else.
  strange=$(for fd in "/proc/$worker/fd"/*; do readlink "$fd"; done |
    grep -vE "^(socket:|/memfd:vrdma|anon_inode:|/dev/null|$R/vrdmad.lock|$R/state/[0-9]+\.(anchors|session)|/proc/[0-9]+/(mem|maps))" || true)
  [[ -z $strange ]] || fail "it has the descriptors $strange"
done

say "a worker that is killed is replaced beneath its programs, and no other is"
for signal in KILL KILL SEGV; do
  kill -"$signal" "$red"
  replaced() { [[ -n $(worker_of red-b) && $(worker_of red-b) != "$red" ]]; }
  wait_until 10 replaced || fail "no other worker takes over the sessions of red"
  red=$(worker_of red-b)
  wait_until 10 has_sessions 1 1 || fail "the sessions are not counted"
  flows_go_on "after SIG$signal"
done
[[ $(worker_of blue-b) == "$blue" ]] || fail "the worker of blue is another one"
end_flows "after three ends of a worker"
grep -q "the worker of tenant/red crashes: Segmentation fault" "$T/vrdmad.log" || fail "the log does not tell of the crash"
wait_until 10 has_sessions 0 0 || fail "va or wa has sessions"

say "a worker that crashes again and again ends the sessions of its tenant"
begin_flow red va vb 18517
begin_flow blue wa wb 18518
wait_until 20 has_sessions 1 1 || fail "there are no sessions"
crash_workers red-b red-a
kill_programs red-a red-b
FLOWS=(blue-a blue-b)
end_flows "after the end of red's sessions"
LIMIT=20 on a nobody ibv_devinfo -d va >/dev/null || fail "va cannot be opened any more"

say "workers end with the daemon"
spawn sleeper a nobody ibv_asyncwatch -d va
wait_until 10 has_sessions 1 0 || fail "there is no session"
worker=$(workers | head -1)
kill_daemon
wait_until 10 ended "$worker" || fail "a worker is left"
start_daemon
wait_until 10 has_sessions 1 0 || fail "the session is not taken over"
kill "${PID[sleeper]}"
reap sleeper 5

say "a worker ends when no program is connected"
no_workers() { [[ $(count) -eq 0 ]]; }
wait_until 20 no_workers || fail "there are $(count)"
