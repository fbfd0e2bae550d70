#!/bin/bash
# default.sh: two vdevices without a named tenant do not trust each other.
#
#     netns a                    netns b
#   +-----------+              +-----------+
#   | va -- eth0| ============ |eth0 -- vb |    made as a README reader makes them: without --tenant
#   +-----------+              +-----------+
. "$(dirname "$0")/../lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
exchange() { # 500 messages from b to a and back; $REAPED is the client's status
  spawn server a root ibv_rc_pingpong -d va -g "$(gid_index a va 10.0.0.1)" -n 500
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b root ibv_rc_pingpong -d vb -g "$(gid_index b vb 10.0.0.2)" -n 500 10.0.0.1
  reap client 40
  local status=$REAPED
  kill -9 "${PID[server]}" 2>/dev/null || true
  reap server 10
  REAPED=$status
}
id_of() { ctl vdev show "$1" | awk '$1 == "id" { print $2 }'; }
none_direct() { [[ $(stat_of va work_requests_direct) == 0 && $(stat_of vb work_requests_direct) == 0 ]]; }

say "without a tenant and a fabric they do not meet"
vdev_create va a eth0
vdev_create vb b eth0
exchange
[[ $REAPED -ne 0 ]] || fail "vb reaches va"
none_direct || fail "there was a direct link"
[[ $(ctl vdev show va -o json) == *"\"tenant\": \"vdev/$(id_of va)\""* ]] || fail "va has another tenant"

say "nobody can be put into such a tenant or fabric"
for option in --tenant --fabric; do
  if vdev_create vc b eth0 $option "vdev/$(id_of va)" 2>"$T/err"; then fail "$option vdev/ is taken"; fi
  grep -q "is not a valid name" "$T/err" || fail "another error: $(<"$T/err")"
done

say "the daemon's restart changes neither"
lasting() { ctl vdev show -o json | grep -vE '"(used|sessions)":'; }  # not what is in use
before=$(lasting)
[[ $before == *"vdev/$(id_of vb)\""* ]] || fail "vdev show says: $before"
kill_daemon
start_daemon
[[ $(lasting) == "$before" ]] || fail "not as it was: $(ctl vdev list)"

say "in one fabric, without a tenant, all is mediated"
ctl vdev delete va vb
vdev_create va a eth0 --fabric f
vdev_create vb b eth0 --fabric f
exchange
[[ $REAPED -eq 0 ]] || fail "they do not meet in one fabric"
none_direct || fail "there was a direct link: $(stat_of va work_requests_direct)"

say "--no-direct forbids direct links in a tenant, also after a restart"
ctl vdev delete va vb
vdev_create va a eth0 --tenant red --no-direct
vdev_create vb b eth0 --tenant red
for round in created restarted; do
  exchange
  [[ $REAPED -eq 0 ]] || fail "$round: they do not meet in one tenant"
  none_direct || fail "$round: there was a direct link"
  [[ $(ctl vdev show va) == *"mediated, by --no-direct"* ]] || fail "$round: it is not shown"
  kill_daemon
  start_daemon
done

say "without it, they have one: the counter counts"
ctl vdev delete va
vdev_create va a eth0 --tenant red
exchange
[[ $REAPED -eq 0 ]] || fail "they do not meet in one tenant"
if none_direct; then fail "there is no direct link"; fi
