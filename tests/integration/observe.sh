#!/bin/bash
# observe.sh: the operator's view: counters of both modes, top, Prometheus, the log, the audit.
#
#     netns a                 netns b
#   +-----------+           +-----------+     va, vb: one tenant, so their programs send directly
#   | va -- eth0|== veth ===|eth0 -- vb |     vc: another tenant in the fabric, so by the worker
#   |           |           |eth1 -- vc |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
setup
audit=$T/audit.jsonl
start_daemon --log-format json --audit-log "$audit" --metrics "unix:$R/metrics.sock"
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
loose b eth1
ip_in b address add 10.0.1.3/24 dev eth1
vdev_create va a eth0 --tenant red --fabric shared --quota qp=8
vdev_create vb b eth0 --tenant red --fabric shared
vdev_create vc b eth1 --tenant blue --fabric shared
INDEX_A=$(gid_index a va 10.0.0.1)
INDEX_B=$(gid_index b vb 10.0.0.2)

scrape() { curl -sS --fail --max-time 10 --unix-socket "$R/metrics.sock" http://vrdma/metrics; }
metric() { # FAMILY{LABELS}
  local value
  value=$(grep -v '^#' "$T/scrape.log" | sed 's/,netns="[^"]*",id="[0-9]*"//' | grep -F "$1 " | awk '{ print $NF }') || true
  [[ -n $value ]] || fail "Prometheus has no $1"
  printf '%.0f' "$value"
}

say "a program of a vdevice of its own tenant is counted where it executes"
pair nobody ib_write_bw -F -s 4096 -n 1000
[[ $(stat_of vb work_requests_direct) -ge 1000 ]] || fail "vb's 1000 writes are not counted"
[[ $(stat_of vb work_bytes_direct) -ge 4096000 ]] || fail "vb's bytes are not counted"

say "between tenants the worker counts"
INDEX_C=$(gid_index b vc 10.0.1.3)
tcp_server a nobody ib_send_bw -F -d va -x "$INDEX_A" -n 1000 -s 4096
spawn client b nobody ib_send_bw -F -d vc -x "$INDEX_C" -n 1000 -s 4096 10.0.0.1
reap client 60
[[ $REAPED -eq 0 ]] || fail "the client ends with status $REAPED"
reap server 10
[[ $(stat_of vc work_requests_connected) -ge 1000 ]] || fail "vc's 1000 sends are not counted"
[[ $(stat_of vc work_bytes_connected) -ge 4096000 ]] || fail "vc's bytes are not counted"
[[ $(stat_of vc work_requests_direct) -eq 0 ]] || fail "vc did something directly"

say "Prometheus says the same, by vdevice, tenant, transport, state"
spawn holder b nobody ib_send_bw -F -d vb -q 3 -D 100
scrape >"$T/scrape.log"
[[ $(metric 'vrdma_work_requests_total{vdevice="vc",tenant="blue",transport="connected"}') -ge 1000 ]] || fail "vc"
[[ $(metric 'vrdma_work_bytes_total{vdevice="vb",tenant="red",transport="direct"}') -ge 4096000 ]] || fail "vb"
[[ $(metric 'vrdma_quota_limit{vdevice="va",tenant="red",kind="qp"}') -eq 8 ]] || fail "va's limit is not 8"
[[ $(metric vrdma_vdevices) -eq 3 ]] || fail "there are not 3 vdevices"
for line in "# TYPE vrdma_qps gauge" "# TYPE vrdma_work_failed_total counter"; do
  grep -qx "$line" "$T/scrape.log" || fail "Prometheus does not say '$line'"
done
kill "${PID[holder]}"
reap holder 5
while read -r family; do
  grep -q "\`$family\`" "$(dirname "$0")/../../docs/metrics.md" || fail "docs/metrics.md has no $family"
done < <(awk '$1 == "#" && $2 == "TYPE" && $3 !~ /vrdma_tenant_|vrdma_cm_/ { print $3 }' "$T/scrape.log")
ctl stats -o json | python3 -c '
import json, re, sys
text = open(sys.argv[1]).read()
families = {re.sub("^vrdma_(daemon_|tenant_|)|_total$", "", n) for n in re.findall("^# TYPE (\\w+)", text, re.M)}
units = {"cpu_microseconds": "cpu_seconds"}
missing = {c["name"] for c in json.load(sys.stdin) if c["value"] and not c["name"].startswith("worker_longest_pass")
           and not any(units.get(c["name"], c["name"]).startswith(f) for f in families)}
assert not missing, missing' "$T/scrape.log" || fail "counters of vrdmactl stats are no metrics"
[[ $(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$R/metrics.sock" http://vrdma/other) == 404 ]] || fail "not 404"
[[ $(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$R/metrics.sock" -d x http://vrdma/metrics) == 405 ]] || fail "not 405"
[[ $(stat -c %a "$R/metrics.sock") == 600 ]] || fail "anybody may read the metrics"

say "what a vdevice counted stays with its tenant"
before=$(stat_of tenant/blue work_requests_connected)
ctl vdev delete vc
[[ $(stat_of tenant/blue work_requests_connected) -ge $before && $before -ge 1000 ]] || fail "blue's work is forgotten"

vdev_create vd b eth1 --tenant red
ctl vdev delete vd
! ctl stats tenant/blue >"$T/out" 2>&1 || fail "blue has nothing any more, and is still remembered"

say "top"
ctl top --once --interval 0.1 | grep -E '^va +red +0 +0 ' >/dev/null || fail "top does not show va"
ctl top --once --interval 0.1 -o json | python3 -c '
import json, sys
rows = {v["name"]: v for v in json.load(sys.stdin)["vdevs"]}
assert set(rows) == {"va", "vb"} and rows["va"]["direct"]["bytes_per_s"] == 0, rows' || fail "top's JSON is another"
say "top by process, and why something is refused"
tcp_server a nobody ib_write_bw -F -d va -x "$INDEX_A" -D 20
spawn client b nobody ib_write_bw -F -d vb -x "$INDEX_B" -D 20 10.0.0.1
moves() { # the client's process has a row, and its bytes are its own
  ctl top -p --once --interval 0.3 -o json | python3 -c '
import json, sys
rows = {v["pid"]: v for v in json.load(sys.stdin)["vdevs"]}
mine = rows[int(sys.argv[1])]
sys.exit(not (mine["name"] == "vb" and mine["qps"] == 1 and mine["direct"]["bytes_per_s"] > 1e6))' "${PID[client]}" 2>/dev/null
}
wait_until 15 moves || fail "top -p: $(ctl top -p --once)"
kill_programs client server
unused() { [[ $(ctl quota show va --columns kind,used | awk '$1 == "qp" { print $2 }') -eq 0 ]]; }
wait_until 10 unused || fail "va has queue pairs of a program that has ended"
ctl quota set va qp=0
VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" top --interval 0.2 --columns vdevice,reason >"$T/top.log" &
PID[top]=$!
is_told() { grep -q '^va  *quota:qp$' "$T/top.log"; }
refuse() { LIMIT=5 on a nobody ibv_rc_pingpong -d va -g "$INDEX_A" >/dev/null 2>&1 || true; is_told; }
wait_until 15 refuse || fail "no reason: $(tail -n 5 "$T/top.log")"
kill_programs top
ctl quota set va qp=8

# On a terminal: top draws, q ends it, and the terminal is restored.
VRDMA_RUN_DIR=$R timeout 20 python3 - "$BUILD/bin/vrdmactl" <<'END' || fail "top on a terminal"
import os, pty, sys, termios, time
pid, tty = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "top", "--interval", "0.1"])
seen = b""
while b"q ends" not in seen:
    seen += os.read(tty, 4096)
assert b"va" in seen and b"\x1b[?1049h" in seen and b"by bytes" in seen
os.write(tty, b">")
while b"by requests" not in seen:
    seen += os.read(tty, 4096)
os.write(tty, b"q")
try:
    while True:
        seen += os.read(tty, 4096)
except OSError:
    pass
assert seen.rstrip().endswith(b"\x1b[?1049l"), seen[-40:]
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
END

say "the audit: each change, by whom, with its result; what only looks is not in it"
if ctl vdev create va --netns "$(ns a)" --netdev eth0 2>/dev/null; then fail "there are two va"; fi
ctl quota set va qp=9
python3 - "$audit" "$T/vrdmad.log" <<'END' || fail "the audit is not right"
import json, sys
audit = [json.loads(line) for line in open(sys.argv[1])]
log = [json.loads(line) for line in open(sys.argv[2])]
got = [(a["audit"], a["object"], a["result"]) for a in audit]
assert got == [("vdev create", "va", "done"), ("vdev create", "vb", "done"), ("vdev create", "vc", "done"),
               ("vdev delete", "vc", "done"), ("vdev create", "vd", "done"), ("vdev delete", "vd", "done"),
               ("quota set", "va", "done"), ("quota set", "va", "done"),
               ("vdev create", "va", "refused"), ("quota set", "va", "done")], got
for a in audit:
    assert a["uid"] == 0 and a["pid"] > 0 and a["program"] == "vrdmactl", a
assert audit[8]["errno"] == 17 and "va" in audit[8]["error"]
assert "netdev=eth0" in audit[0]["arguments"] and "qp=8" in audit[0]["arguments"]
words = dict(word.split("=", 1) for word in audit[9]["arguments"].split())
assert words["qp"] == "9" and words["netns"].endswith("-a") and int(words["id"]) > 0, words
assert audit[0]["arguments"].endswith(" id=" + words["id"]), "another va"
assert [a["message"] for a in audit] == [l["message"] for l in log if "audit" in l]
assert all({"time", "level", "message"} <= set(l) for l in log)
END

say "metrics on a loopback port, and on no other"
stop_daemon
[[ ! -e $R/metrics.sock ]] || fail "the metrics' socket is left"
for wrong in 0.0.0.0:9464 127.0.0.1 127.0.0.1:0 127.0.0.1:99999 unix: "[::]:9464" localhost:9464; do
  if "$BUILD/sbin/vrdmad" --user "$DAEMON_USER" --run-dir "$R" --state-dir "$T/none" --log-level error --metrics "$wrong" 2>"$T/wrong.log"; then fail "$wrong"; fi
  [[ $(wc -l <"$T/wrong.log") -eq 1 ]] || fail "$wrong: more than one sentence: $(cat "$T/wrong.log")"
done
port=$((20000 + $$ % 20000))
start_daemon --metrics "127.0.0.1:$port"
curl -sS --fail --max-time 10 "http://127.0.0.1:$port/metrics" >"$T/scrape.log"
grep -qx 'vrdma_vdevices 2' "$T/scrape.log" || fail "not 2 vdevices"
