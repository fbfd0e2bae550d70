#!/bin/bash
# web.sh: the page of `vrdmactl web`: what it shows, to whom, and what the process that serves it may do.
#
#     netns a                netns b                 the host
#   +-----------+  veth    +-------------+     +------------------------------------------+
#   | va -- eth0|==========|eth0 -- vb   |     | vrdmad -- vrdmactl web -- its server -- curl
#   | ib_write_lat         | ib_write_lat |     |           root           nobody          |
#   +-----------+          +-------------+     +------------------------------------------+
. "$(dirname "$0")/lib.sh"
setup
command -v curl >/dev/null || skip "curl is not installed"
port=$((20000 + $$ % 40000))
at=127.0.0.1:$port
start_daemon
two_vdevices mediated --quota qp=4

say "only this host is served"
for wrong in 0.0.0.0:80 10.0.0.1:80 "[::]:80" unix:/tmp/x 127.0.0.1 127.0.0.1:0 localhost:80; do
  status=0
  ctl web --listen "$wrong" 2>"$T/err" || status=$?
  [[ $status -eq 2 ]] || fail "--listen $wrong ends with $status"
  grep -qF "'$wrong' is not 127.0.0.1:PORT or [::1]:PORT" "$T/err" || fail "--listen $wrong: $(<"$T/err")"
done
status=0
VRDMA_RUN_DIR=$T/none timeout 10 "$BUILD/bin/vrdmactl" web --listen "$at" 2>"$T/err" || status=$?
[[ $status -eq 1 ]] && grep -q "vrdmad" "$T/err" || fail "without a daemon it ends with $status: $(<"$T/err")"

VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" web --listen "$at" >"$T/address" 2>"$T/web.log" &
PID[web]=$!
wait_until 10 grep -qE "^http://$at/#[0-9a-f]{32}$" "$T/address" || fail "it prints no address: $(cat "$T/address" "$T/web.log")"
token=$(sed 's/.*#//' "$T/address")
server=$(pgrep -P "${PID[web]}")
status=0
ctl web --listen "$at" 2>"$T/err" || status=$?
[[ $status -eq 1 ]] && grep -q "bind $at: Address already in use" "$T/err" || fail "of two, the second ends with $status: $(<"$T/err")"

say "the server has no privilege"
has() { grep -qE "^$1:[[:space:]]$2\$" "/proc/$server/status" || fail "of the server, $1 is not $2: $(grep "^$1" "/proc/$server/status")"; }
has Uid '65534	65534	65534	65534'
has Gid '65534	65534	65534	65534'
has Groups ' ?'
has CapEff 0+
has CapPrm 0+
has NoNewPrivs 1
has Seccomp 2
[[ -z $(ls -A "/proc/$server/root/") ]] || fail "its root is not empty"
[[ $(readlink "/proc/$server/root") == *"(deleted)" ]] || fail "its root can be filled: $(readlink "/proc/$server/root")"
[[ -z $(find "/proc/$server/fd" -lname '/*' ! -lname '/dev/*' ! -lname '*/address' ! -lname '*/web.log') ]] || fail "it has files: $(ls -l "/proc/$server/fd")"

# get PATH [OPTIONS OF CURL]: the status; the answer is in $T/answer, its header in $T/header.
get() { curl -sS --max-time 10 -o "$T/answer" -D "$T/header" -w '%{http_code}' "http://$at$1" "${@:2}"; }
state() { [[ $(get /state -H "Authorization: Bearer $token") == 200 ]]; }
# shows PYTHON: a condition on the state s
shows() {
  state && python3 -c 'import json,sys
s = json.load(open(sys.argv[2]))
sys.exit(not eval(sys.argv[1]))' "$1" "$T/answer" 2>>"$T/shows.log"
}

say "the page is for everybody on this host, the state for those with the token, and nothing for other sites"
for path in / /page.css /page.js; do
  [[ $(get "$path") == 200 ]] || fail "$path: $(<"$T/answer")"
  grep -qi "^Content-Security-Policy: default-src 'none'; script-src 'self'" "$T/header" || fail "$path: $(<"$T/header")"
  grep -qi '^X-Content-Type-Options: nosniff' "$T/header" || fail "$path: $(<"$T/header")"
done
[[ $(get /state) == 401 ]] || fail "without the token: $(<"$T/answer")"
[[ $(get /state -H "Authorization: Bearer ${token%?}") == 401 ]] || fail "with another token: $(<"$T/answer")"
[[ $(get /state -H "Authorization: Bearer $token" -H 'Host: evil.example') == 403 ]] || fail "for another site: $(<"$T/answer")"
[[ $(get / -X POST) == 405 ]] || fail "POST: $(<"$T/answer")"
[[ $(get /../../etc/passwd --path-as-is) == 404 ]] || fail "a path out of it: $(<"$T/answer")"

say "it shows vdevices, quotas, traffic by its transport, and refusals"
shows 'len(s["vdevices"]) == 2 and {"red", "blue"} == {t["name"] for t in s["tenants"]} and not s["links"]' || fail "it shows $(<"$T/answer")"
netns_add c
loose c eth0
vdev_create vc c eth0
wait_until 10 shows '[v for v in s["vdevices"] if v["name"] == "vc" and v["state"] == "ACTIVE"]' || fail "no later vdevice: $(<"$T/answer")"
ip_in c link set eth0 down
wait_until 10 shows '[v for v in s["vdevices"] if v["name"] == "vc" and v["state"] == "DOWN"]' || fail "no port that is down: $(<"$T/answer")"
ctl vdev delete vc >/dev/null
wait_until 10 shows 'len(s["vdevices"]) == 2' || fail "a deleted vdevice stays: $(<"$T/answer")"
spawn_writes flow va vb 18600 30
wait_until 20 shows '[l for l in s["links"] if l["transport"] == "mediated" and l["sent"] + l["returned"] > 0] and s["bytes"] > 0' ||
  fail "it shows no traffic: $(<"$T/answer")"
shows '[q for v in s["vdevices"] for q in v["quota"] if q["kind"] == "qp" and q["used"] == "1" and q["limit"] == "4"]' || fail "no quota: $(<"$T/answer")"
spawn greedy a nobody ib_send_bw -F -d va -q 8 -p 18700
wait_until 20 listens greedy 18700 || fail "the greedy server does not listen"
spawn greedy_client b nobody ib_send_bw -F -d vb -q 8 -p 18700 10.0.0.1
reap greedy 20
reap greedy_client 20
wait_until 10 shows '[e for e in s["events"] if e["type"] == "quota" and e["vdevice"] == "va" and e["tenant"] == "red"]' || fail "no refusal: $(<"$T/answer")"

say "silent clients do not keep others out for long"
python3 - "$port" <<'END' &
import socket, sys, time
silent = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(100)]
time.sleep(3600)
END
PID[silent]=$!
wait_until 20 state || fail "it does not answer any more"
kill "${PID[silent]}"; wait "${PID[silent]}" 2>/dev/null || true; unset 'PID[silent]'

say "it survives the daemon"
kill_daemon
wait_until 10 shows 's["error"]' || fail "it does not say that vrdmad has ended: $(<"$T/answer")"
start_daemon
wait_until 20 shows '[l for l in s["links"] if l["sent"] + l["returned"] > 0]' || fail "after the restart: $(<"$T/answer")"
kill_programs flow-server flow-client

say "the server ends with vrdmactl"
kill "${PID[web]}"
wait "${PID[web]}" 2>/dev/null || true
unset 'PID[web]'
wait_until 10 ended "$server" || fail "the server goes on"
