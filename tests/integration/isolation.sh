#!/bin/bash
# isolation.sh: fabrics never meet, even if their addresses are equal.
#
#        fabric red                      fabric blue
#   netns r1      netns r2          netns b1      netns b2
#   vr1 -- eth0 == eth0 -- vr2      vb1 -- eth0 == eth0 -- vb2
#   10.0.0.1      10.0.0.2          10.0.0.1      10.0.0.2
#       \_____________ eth9, 10.9.0.0/24, no vdevice _____/
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add r1 r2 b1 b2
join r1 eth0 10.0.0.1/24 r2 eth0 10.0.0.2/24
join b1 eth0 10.0.0.1/24 b2 eth0 10.0.0.2/24
join r1 eth9 10.9.0.1/24 b2 eth9 10.9.0.2/24  # programs find each other here
for n in r1 r2; do vdev_create "v$n" "$n" eth0 --tenant red; done
for n in b1 b2; do vdev_create "v$n" "$n" eth0 --tenant blue; done

say "each table holds its own GIDs only"
own_gids() {
  ip_in "$1" -oneline address show dev eth0 | grep -oE 'inet6? [^/]*' | awk '{print $2}' |
    sed -E 's/^([0-9.]+)$/::ffff:\1/' | sort | xargs
}
seen_gids() { on "$1" nobody ibv_devinfo -v | sed -nE 's/^\s*GID\[.*\]:\s*(.*), .*/\1/p' | sort | xargs; }
shows_its_own() { [[ $(seen_gids "$1") == "$(own_gids "$1")" ]]; }
for n in r1 r2 b1 b2; do  # the kernel adds the address of IPv6 a little later
  wait_until 10 shows_its_own $n || fail "v$n shows $(seen_gids $n); its own are $(own_gids $n)"
done

say "inside a fabric they meet"
talk() { # SERVER CLIENT SERVER_ADDRESS
  spawn server "$1" nobody ibv_rc_pingpong -d "v$1" -n 100 -g "$(gid_index "$1" "v$1" 10.0.0.[12])"
  wait_until 20 listens server || fail "the server does not listen"
  spawn client "$2" nobody ibv_rc_pingpong -d "v$2" -n 100 \
    -g "$(gid_index "$2" "v$2" 10.0.0.[12])" "$3"
  reap client 30
}
talk r1 r2 10.0.0.1
[[ $REAPED -eq 0 ]] || fail "red does not reach red"
reap server 10
talk b1 b2 10.0.0.1
[[ $REAPED -eq 0 ]] || fail "blue does not reach blue"
reap server 10

say "across fabrics they do not, though they know each other's GID, QPN and PSN"
talk r1 b2 10.9.0.1
[[ $REAPED -ne 0 ]] || fail "blue reaches red"
grep -qi 'retry counter exceeded' "$T/client.log" || fail "the client does not see a silent network"
kill -9 "${PID[server]}"
reap server 10

say "the same programs at the same addresses and ports, at the same time"
both() { # NAME FUNCTION: in red and in blue
  "$2" r "$1-red" & local red=$!
  "$2" b "$1-blue"
  wait $red || fail "$1 of red"
}
converse() { # FABRIC NAME: programs that compare what they get with what they expect
  spawn "$2" "${1}1" nobody rping -s -a 10.0.0.1 -C 300 -V
  wait_until 20 listening "v${1}1" || fail "$2: the server does not listen"
  LIMIT=60 on "${1}2" nobody rping -c -a 10.0.0.1 -C 300 -V -S 1000 >"$T/$2-client.log" 2>&1 ||
    { cat "$T/$2-client.log" "$T/$2.log"; exit 1; }
  reap "$2" 20
}
both rping converse

say "listeners and connections of one fabric do not exist in the other"
spawn server b1 nobody rping -s -a 10.0.0.1 -C 3
wait_until 20 listening vb1 || fail "the server does not listen"
if on r2 nobody rping -c -a 10.0.0.1 -C 3 >"$T/client.log" 2>&1; then
  fail "red is connected to who listens in blue"
fi
for n in r1 r2; do
  [[ $(ctl conn list "v$n") != *LISTEN* ]] || fail "v$n lists a listener of blue: $(ctl conn list v$n)"
done
[[ $(ctl conn list vb1) != *ESTABLISHED* ]] || fail "vb1 lists a connection of red"
kill -9 "${PID[server]}"
reap server 10

say "what one fabric does changes no counter of the other"
# The session of the killed server is counted until the worker has ended it. Without gauges: connections in TIMEWAIT,
# for example, end in the meantime.
grown() { python3 -c 'import json, sys; print(*[c for c in json.load(sys.stdin) if not c["gauge"]], sep="\n")'; }
counters() {
  local name
  for name in vb1 vb2; do
    ctl stats $name -o json | grown
    ctl conn stats $name -o json | grown
  done
}
ended_all() { ctl vdev show vb1 -o json | grep -q '"sessions": 0,'; }
wait_until 10 ended_all || fail "the session of the killed server is left"
wait_until 20 stays 1 counters || fail "the counters of blue do not come to rest: $(counters)"
before=$(counters)
talk r1 r2 10.0.0.1
[[ $REAPED -eq 0 ]] || fail "red does not reach red"
reap server 10
converse r rping-alone
[[ $(counters) == "$before" ]] || fail "red was counted as blue: $(diff <(echo "$before") <(counters))"

say "a session socket serves its own netns only"
cat >"$T/connect.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(float(sys.argv[2]))
try:
    s.connect(sys.argv[1])
    print("refused" if s.recv(1) == b"" else "answered")
except TimeoutError:
    print("accepted")
except OSError:
    print("refused")
PY
[[ $(socket_of vr1) == "$R/netns/$(cookie_of r1)/0.sock" ]] || fail "the socket of vr1: $(socket_of vr1)"
for user in root nobody; do
  try() { on "$1" $user python3 "$T/connect.py" "$(socket_of vr1)" "$2"; } # NAMESPACE SECONDS until it is let in
  [[ $(try r1 3) == accepted ]] || fail "$user of r1 is not let in to vr1: $(try r1 3)"
  [[ $(try r2 20) == refused ]] || fail "$user of r2 is let in to vr1"
done

say "nor does a directory made to look like one's own help"
mkdir -p "$T/fake/netns/$(cookie_of b1)"
ln -s "$(socket_of vr1)" "$T/fake/netns/$(cookie_of b1)/0.sock"
if on b1 nobody env VRDMA_RUN_DIR="$T/fake" ibv_devinfo -d vr1 >"$T/fake.log" 2>&1; then
  fail "blue opens vr1 through a link"
fi

say "one GID has one holder in a fabric, and the refusal names it"
loose r2 eth1
ip_in r2 address add 10.0.0.1/32 dev eth1
if vdev_create thief r2 eth1 --tenant red 2>"$T/thief"; then
  fail "10.0.0.1 has two holders in the fabric red"
fi
grep -q vr1 "$T/thief" || fail "the refusal does not name vr1: $(cat "$T/thief")"
