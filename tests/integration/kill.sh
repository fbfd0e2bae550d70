#!/bin/bash
# kill.sh direct|mediated: when a process is killed, the others get their errors, and nothing of it
# remains.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |     va, vb: one tenant (direct), or
#   | 10.0.0.1  |           | 10.0.0.2  |     two tenants in one fabric (mediated)
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
start_daemon --daemon-grace 0
two_vdevices "$mode"

# One program spins and one sleeps on events; both run until they are killed.
programs=(
  "ib_send_bw -F -D 300 -x GID"
  "ibv_rc_pingpong -e -n 1000000000 -g GID"
)
start() { # PROGRAM ARGUMENTS...
  local program=$1
  shift
  spawn server a nobody "$program" -d va "${@/#GID/$INDEX_A}"
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b nobody "$program" -d vb "${@/#GID/$INDEX_B}" 10.0.0.1
  wait_until 20 works vb || fail "there is no traffic"
  ended "${PID[server]}" && fail "the server ended by itself"
  ended "${PID[client]}" && fail "the client ended by itself"
  return 0
}
dies() { # NAME: kill -9
  kill -9 "${PID[$1]}"
  reap "$1" 5
}
sees_errors() { # NAME: ends within seconds, and because of a completion with an error
  reap "$1" 8
  [[ $REAPED -ne 0 ]] || fail "$1 ends as if nothing had happened"
  grep -qiE 'completion with error|failed status|work request flushed|retry counter' "$T/$1.log" ||
    fail "$1 saw no completion with an error"
}

pair nobody ib_send_bw -F -n 100
wait_until 20 stays 1 holdings || fail "vrdmad does not come to rest"
rest=$(holdings)
say "at rest: $(xargs <<<"$rest")"
nothing_remains() {
  wait_until 10 holds_only "$rest" || fail "$1: vrdmad held [$rest], now holds [$(holdings)]"
}

for words in "${programs[@]}"; do
  read -ra program <<<"$words"
  for victim in client server; do
    say "${program[0]}: the $victim is killed"
    start "${program[@]}"
    survivor=server
    [[ $victim == server ]] && survivor=client
    dies $victim
    sees_errors $survivor
    nothing_remains "$victim killed"
  done
  say "${program[0]}: both are killed"
  start "${program[@]}"
  kill -9 "${PID[server]}" "${PID[client]}"
  reap server 5
  reap client 5
  nothing_remains "both killed"
done

for words in "${programs[@]}"; do
  read -ra program <<<"$words"
  say "${program[0]}: vrdmad is killed"
  start "${program[@]}"
  kill_daemon
  if [[ $mode == mediated ]]; then
    sees_errors client
    # The server may have noticed the client's death first; it must end in either case.
    reap server 8
  else
    sleep 3
    ended "${PID[server]}" && fail "the server did not outlive vrdmad"
    ended "${PID[client]}" && fail "the client did not outlive vrdmad"
    kill -9 "${PID[server]}" "${PID[client]}"
    reap server 5
    reap client 5
  fi
  # A new daemon takes over the run directory and restores the vdevices.
  start_daemon --daemon-grace 0
  pair nobody ib_send_bw -F -n 100
done
