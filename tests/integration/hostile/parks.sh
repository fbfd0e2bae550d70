#!/bin/bash
# parks.sh: sessions that are parked, without CRIU: numbers and images that are forged, and what ends between the steps.
#
#     netns a                netns b
#   +-----------+          +-----------+
#   | va (red)  | ======== | vb (red)  |
#   +-----------+          +-----------+
#    ib_send_bw             ib_send_bw
. "$(dirname "$0")/../lib.sh"
setup
need_worker_processes
WORKERS_END=1
start_daemon
two_vdevices mediated
spawn watcher a nobody ibv_asyncwatch -d va
spawn other a nobody ibv_asyncwatch -d va
has_sessions() { [[ $(ctl vdev show va) =~ sessions\ +$1 ]]; }
wait_until 10 has_sessions 2 || fail "va is not open"
refused() { # PATTERN WORD...
  local pattern=$1
  shift
  if ctl checkpoint "$@" >"$T/out" 2>&1; then fail "checkpoint $*: it is done"; fi
  grep -qE "^vrdmactl: .*$pattern" "$T/out" || fail "checkpoint $*: $(<"$T/out")"
  [[ $(wc -l <"$T/out") -eq 1 ]] || fail "checkpoint $*: not one line: $(<"$T/out")"
}

say "numbers"
for pid in 0 -1 4294967296 x ''; do refused 'is not the number of a process' park "$pid"; done
for pid in 1 999999 "$DAEMON" "$(helper broker)"; do refused 'has no vdevice open' park "$pid"; done
for step in resume abandon detach; do refused 'no parked process' $step "${PID[watcher]}"; done

say "a session without memory is parked, and goes on"
ctl checkpoint park "${PID[watcher]}" >/dev/null || fail "it cannot be parked"
ctl checkpoint resume "${PID[watcher]}" || fail "it does not go on"

say "forged descriptions of a process"
ctl checkpoint park "${PID[watcher]}" -o json >"$T/parked.json" || fail "it cannot be parked"
refused 'still has its sessions' attach "$T/parked.json"
ctl checkpoint detach "${PID[watcher]}"
refused 'is detached already' detach "${PID[watcher]}"
refused 'is detached: attach one' resume "${PID[watcher]}"
forge() { # STATEMENT: of Python, about `it` and its first session
  python3 - "$T/parked.json" "$1" >"$T/forged.json" <<'E'
import json, sys
it = json.load(open(sys.argv[1]))
session = it["sessions"][0]
exec(sys.argv[2])
print(json.dumps(it))
E
}
forged() { # PATTERN STATEMENT
  forge "$2"
  refused "$1" attach "$T/forged.json"
}
forged 'no parked process has this token' 'it["token"] = "0" * 32'
forged 'no parked process has this token' 'it["token"] = ""'
forged 'is not connected to the socket' "it['pid'] = ${PID[other]}"
forged 'is not connected to the socket' "it['pid'] = $DAEMON"
forged 'session [0-9]+ is missing' 'it["sessions"] = []'
forged 'session [0-9]+ is missing' 'session["number"] += 1'
forged "is not what 'vrdmactl checkpoint park -j' prints" 'session["arena"] = "x"'
forged "is not what 'vrdmactl checkpoint park -j' prints" 'session["channels"] = {"x": 1}'
head -c 1000000 /dev/zero | tr '\0' '[' >"$T/forged.json"
refused "is not what 'vrdmactl checkpoint park -j' prints" attach "$T/forged.json"

say "forged images of sessions"
ctl checkpoint show "${PID[watcher]}" -o json >"$T/parked.json" || fail "it is not shown"
refused 'its sessions are parked here' place "$T/parked.json"
forged_image() { # PATTERN STATEMENT: the same of an image from elsewhere
  forged "$1" "it['token'] = '1' * 32; $2"
  refused "$1" place "$T/forged.json"
}
forged_image 'no parked process has this token' 'session["image"] = ""'
forged_image 'its state is damaged' 'session["image"] = "00"'
forged_image 'its state is damaged' 'session["image"] += "00"'
forged_image 'its state is of another version' 'session["image"] = session["image"][:16] + "ff" + session["image"][18:]'
forged_image 'an image is not hexadecimal' 'session["image"] = "0x"'
forged_image 'its network namespace has no vdevice' "it['pid'] = $DAEMON"
for seed in {1..40}; do # what can be decoded is placed
  forge "it['token'] = '1' * 32
import random
random.seed($seed)
image = bytearray.fromhex(session['image'])
for _ in range(random.randint(1, 8)): image[random.randrange(len(image))] = random.randrange(256)
session['image'] = image.hex()"
  ctl checkpoint place "$T/forged.json" >"$T/out" 2>&1 ||
    grep -qE '^vrdmactl: process [0-9]+ cannot be restored: ' "$T/out" || fail "seed $seed: $(<"$T/out")"
done
is_serving || fail "vrdmad does not answer"
ctl checkpoint abandon "${PID[watcher]}" || fail "it cannot be abandoned"
wait_until 10 has_sessions 1 || fail "the session stays: $(ctl vdev show va)"
kill_programs watcher other

say "what ends between the steps"
number() { ctl vdev list -o json | python3 -c 'import json, sys
print(sum(kind["used"] for row in json.load(sys.stdin) for kind in row["quota"] if kind["kind"] in ("context", "qp", "mr")))'; }
is_free() { [[ $(number) -eq 0 ]]; }
for how in program detached vdevice netdev worker daemon; do
  spawn server a nobody ib_send_bw -d va -F -q 4 -D 60
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b nobody ib_send_bw -d vb -F -q 4 -D 60 10.0.0.1
  wait_until 20 works vb || fail "nothing is sent"
  ctl checkpoint park "${PID[server]}" >/dev/null || fail "$how: it cannot be parked"
  case $how in
    program) kill -9 "${PID[server]}" ;;
    detached) ctl checkpoint detach "${PID[server]}"; kill -9 "${PID[server]}" ;;
    vdevice) ctl vdev delete va >/dev/null ;;
    netdev) ip_in a link delete eth0 ;;
    worker) kill -9 $(workers) ;;
    daemon) kill_daemon; start_daemon ;;
  esac
  # Of some the sessions have ended, others go on as if they had not been parked.
  ctl checkpoint abandon "${PID[server]}" >"$T/out" 2>&1 || grep -qE 'no parked process|has gone' "$T/out" || fail "$how: $(<"$T/out")"
  kill_programs server client
  wait_until 20 is_free || fail "$how: $(number) objects are left"
  [[ $(ctl vdev list) != *PARKED* ]] || fail "$how: a vdevice is parked: $(ctl vdev list)"
  if [[ $how == netdev ]]; then join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24; fi
  if [[ $how == vdevice || $how == netdev ]]; then
    ctl vdev delete vb >/dev/null 2>&1 || true
    for end in a b; do vdev_create "v$end" $end eth0 --tenant "t$end" --fabric shared; done
  fi
done
