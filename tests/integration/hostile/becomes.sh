#!/bin/bash
# becomes.sh PROGRAM FLOW: a process that has a session becomes a set-user-id program, and a child of it goes on with its
# socket. Neither the worker that serves it, nor one that takes over after the worker, control or the broker was killed,
# reads or writes the memory of that program. Two other tenants exchange data meanwhile.
#
#     netns a                      netns b
#   +----------------------+     +----------+
#   | va (evil): PROGRAM   |     |          |
#   | ra (red): FLOW       |=====| rb: FLOW |
#   +----------------------+     +----------+
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../flows.sh"
setup
need_worker_processes
WORKERS_END=1
cp "$1" "$T/becomes"
cp "$1" "$T/set_id"
chmod 4755 "$T/set_id"
cp "$2" "$T/lib/flow"
findmnt -no OPTIONS -T "$T" | grep -qw nosuid && skip "$T does not allow set-user-id programs"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant evil
for space in a b; do vdev_create r$space $space eth0 --tenant red --no-direct; done
begin_flow red ra rb 18540
flows_go_on "at first"
says() { grep -qs "^$1" "$T/evil-$victim.log"; }
has_refused_or_failed() { says refused || says FAILED; }
for victim in worker control broker; do
  say "$victim"
  spawn "evil-$victim" a root "$T/becomes" "$(socket_of va)" "$T/set_id"
  wait_until 30 says 'asked\|FAILED' || fail "it does not come to an end: $(<"$T/evil-$victim.log")"
  says FAILED && fail "$(<"$T/evil-$victim.log")"
  says guarded || fail "there is no set-user-id program: $(<"$T/evil-$victim.log")"
  case $victim in
    worker) worker_of "evil-$victim" | xargs kill -9 ;;
    control) kill_daemon ;;
    broker)
      helper broker | xargs kill -9
      wait_until 20 ended "$DAEMON" || fail "control goes on without a broker"
      wait "$DAEMON" 2>/dev/null || true
      ;;
  esac
  [[ $victim == worker ]] || start_daemon
  wait_until 30 has_refused_or_failed || fail "it is not answered: $(<"$T/evil-$victim.log")"
  says refused && ! says FAILED || fail "$victim: $(<"$T/evil-$victim.log")"
  grep -q "the session of process ${PID[evil-$victim]} cannot be taken over: .* has changed its ids" "$T/vrdmad.log" ||
    fail "$victim: the session of a set-user-id program is taken over"
  ended "${PID[evil-$victim]}" && fail "the set-user-id program has ended: $(<"$T/evil-$victim.log")"
  [[ $(stat -c %u "/proc/${PID[evil-$victim]}") -eq 0 ]] || fail "it is not root"
  kill -9 "${PID[evil-$victim]}"
  reap "evil-$victim" 5
  flows_go_on "after the $victim"
done
no_session_of_evil() { [[ $(ctl vdev show va -o json) == *'"sessions": 0,'* ]]; }
wait_until 10 no_session_of_evil || fail "a session is left: $(ctl vdev show va)"
end_flows "at the end"
