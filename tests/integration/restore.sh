#!/bin/bash
# restore.sh: operators' changes survive the daemon's death; vdevices that cannot be restored are
# listed with the reason; a full disk leaves no partial state (see also full_disk.sh).
#
#     netns a              netns b                netns c
#   +-----------+        +------------+         +-----------+
#   | va -- eth0|        | vb -- eth0 |         | vc -- eth0|    c is named by pid:N
#   +-----------+        +------------+         +-----------+
. "$(dirname "$0")/lib.sh"
setup
mkdir -m 700 "$S"
mount -t tmpfs -o size=1m,mode=700 tmpfs "$S"
undo_mount() { umount -l "$S" 2>/dev/null || true; }
trap 'status=$? line=$BASH_COMMAND; undo_mount; finish $status "$line"' EXIT
start_daemon
netns_add a b c
for n in a b c; do loose $n eth0; done
ip_in a address add 10.0.0.1/24 dev eth0
spawn sleeper c root sleep 1000

# Changes not made by an operator are on disk a moment later.
restart() {
  wait_until 10 all_on_disk || fail "a change is not on disk"
  kill_daemon
  start_daemon
}
# The daemon has locked the database, so that a copy is read.
all_on_disk() {
  rm -rf "$T/disk"
  mkdir "$T/disk"
  cp "$S"/state.db* "$T/disk" || return 1
  everything | python3 -c '
import ipaddress, json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for vdevice in json.load(sys.stdin):
    its = [vdevice["id"]]
    gids = {place: ipaddress.IPv6Address(gid) for place, gid in db.execute("SELECT place, gid FROM vdev_gid WHERE vdev = ?", its)}
    same_gids = all(gids.get(each["index"]) == ipaddress.IPv6Address(each["gid"]) for each in vdevice["gids"])
    if not same_gids or db.execute("SELECT netdev FROM vdev WHERE id = ?", its).fetchone() != (vdevice["netdev"],):
        sys.exit(1)' "$T/disk/state.db" 2>/dev/null
}
field() { # VDEVICE FIELD
  ctl vdev show "$1" -o json | python3 -c '
import json, sys
x = json.load(sys.stdin)
print((x[0] if isinstance(x, list) else x)[sys.argv[1]])' "$2"
}
# Everything except counters and random values.
everything() { ctl vdev show -o json; }
is_lost() { [[ $(field "$1" port_state) == LOST ]]; }
is_there() { [[ $(field "$1" port_state) == ACTIVE ]]; }
has_gid() { [[ $(field "$1" gids) == *":$2'"* ]]; } # VDEVICE ADDRESS

say "all that was said comes back, also what was changed later"
vdev_create va a eth0 --tenant red --fabric f --addresses 0.0.0.0/0 --quota qp=4,mr_bytes=1g --allow raw-packet
vdev_create vb b eth0 --tenant blue --fabric f --addresses 0.0.0.0/0
vdev_create gone b eth0 --tenant other
ctl vdev create vc --netns "pid:${PID[sleeper]}" --netdev eth0 >/dev/null
ctl quota set va qp=9,cm_rate=3
ctl vdev delete gone
ip_in a address add 10.0.0.9/24 dev eth0
ip_in a address add 10.0.0.3/24 dev eth0
ip_in b link set eth0 name eth7
wait_until 5 has_gid va 10.0.0.3 || fail "the addresses are no GIDs"
is_on() { [[ $(field "$1" netdev) == "$2" ]]; } # VDEVICE NETDEV
wait_until 5 is_on vb eth7 || fail "the new name of the interface is not seen"
before=$(everything)
restart
[[ $(everything) == "$before" ]] || { diff <(everything) <(echo "$before"); fail "not as it was"; }
[[ $(field va quota) == *"'qp', 'used': 0, 'limit': 9"* ]] || fail "the quota that was set is lost"
on a root ibv_devinfo -d va >/dev/null || fail "va does not work"
stop_daemon
start_daemon
[[ $(everything) == "$before" ]] || fail "not as it was after an orderly end"

say "an address stays with the vdevice that had it first, also when another is restored before it"
ip_in b address add 10.0.0.77/24 dev eth7
wait_until 5 has_gid vb 10.0.0.77 || fail "the address is no GID"
ip_in a address add 10.0.0.77/24 dev eth0
held() { grep -q "vdevice $(ns a)/va: GID ::ffff:10.0.0.77 is held by vdevice $(ns b)/vb" "$T/vrdmad.log"; }
wait_until 5 held || fail "va is not refused the GID of vb"
restart
is_there va && is_there vb || fail "a restart costs a vdevice: $(ctl vdev list)"
has_gid vb 10.0.0.77 || fail "vb does not have its GID any more"
has_gid va 10.0.0.77 && fail "a restart gives va the GID of vb"
has_gid va 10.0.0.3 || fail "va does not have its own GID any more"
ip_in b address delete 10.0.0.77/24 dev eth7
wait_until 5 has_gid va 10.0.0.77 || fail "va does not get the GID that is free"
ip_in b address add 10.0.0.77/24 dev eth7
restart
has_gid va 10.0.0.77 || fail "a restart takes from va the GID that it got"
has_gid vb 10.0.0.77 && fail "a restart gives vb the GID of va"
ip_in a address delete 10.0.0.77/24 dev eth0
wait_until 5 has_gid vb 10.0.0.77 || fail "vb does not get the GID that is free"

# no_start PATTERN [RUN_DIR [LOG_LEVEL]]: vrdmad exits with status 1 and one line.
no_start() {
  local pattern=$1 status=0
  timeout 20 "$BUILD/sbin/vrdmad" --user "$DAEMON_USER" --run-dir "${2:-$T/other}" --state-dir "$S" --log-level "${3:-off}" \
    2>"$T/err" || status=$?
  [[ $status -eq 1 && $(wc -l <"$T/err") -eq 1 ]] || { cat "$T/err"; fail "it ends with $status"; }
  grep -qE "$pattern" "$T/err" || { cat "$T/err"; fail "it does not say '$pattern'"; }
  say "refused: $(cat "$T/err")"
}

say "a netdev that was renamed meanwhile is the same, another that has its name now is not"
kill_daemon
ip_in b link set eth7 name eth8
loose b eth7
start_daemon
is_there vb || fail "vb is lost: $(field vb lost)"
[[ $(field vb netdev) == eth8 ]] || fail "vb is on $(field vb netdev)"
has_gid vb 10.0.0.77 || fail "vb does not have its GID any more"
before=$(everything)
restart
[[ $(everything) == "$before" ]] || fail "the new name is not kept"

say "a start that fails costs no session"
has_sessions() { [[ $(field va sessions) -eq $1 ]]; }
budget() { # SQL
  python3 -c '
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute(sys.argv[2])
db.commit()' "$S/state.db" "$1"
}
ctl tenant set red --default qp=100 >/dev/null
spawn server a root ibv_rc_pingpong -d va -g "$(gid_index a va 10.0.0.1)"
wait_until 20 has_sessions 1 || fail "there is no session"
kill_daemon
echo "of no version" >"$R/state/4000000.session"
budget "UPDATE budget_limit SET kind = 'unheard'"
no_start unheard "$R"
[[ $(ls "$R/state" | wc -l) -eq 3 ]] || fail "a start that fails removes files of sessions"
budget "UPDATE budget_limit SET kind = 'qp'"
start_daemon
wait_until 10 has_sessions 1 || fail "the session is not taken over"
[[ $(ls "$R/state" | wc -l) -eq 2 ]] || fail "the file of no session is left"
kill -9 "${PID[server]}"
reap server 5
wait_until 5 has_sessions 0 || fail "the session is left"
no_session_files || fail "files of sessions are left"

say "what is not there is lost, with the reason, and comes back with it"
kill_daemon
ip_in b link delete eth8
ip_in b link set eth7 name eth8
start_daemon
is_lost vb || fail "vb is not lost"
ctl vdev list | grep "vb cannot be restored: .*'eth8' that it was created on does not exist" >/dev/null || fail "the list does not say why"
status=0
ctl exec vb -- true 2>"$T/err" || status=$?
[[ $status -eq 125 && $(wc -l <"$T/err") -eq 1 ]] || fail "exec on a lost vdevice: $status $(cat "$T/err")"
grep -q 'is lost' "$T/err" || fail "exec does not say that vb is lost"
ctl quota set vb qp=3 2>/dev/null && fail "the quota of a lost vdevice is set"
is_there va && is_there vc || fail "the others are not there"
ctl vdev delete vb
ctl vdev show vb 2>/dev/null && fail "vb is not forgotten"

say "another netns of the same name is not the same; after a boot the name is enough"
kill_daemon
kill -9 "${PID[sleeper]}"
reap sleeper 5
ip netns delete "$(ns c)"
ip netns add "$(ns c)"
loose c eth0
start_daemon
ctl vdev show vc 2>/dev/null && fail "vc is kept, whose process has ended"
ctl vdev create vc --netns "$(ns c)" --netdev eth0 >/dev/null || fail "vc cannot be made anew"
kill_daemon
ip netns delete "$(ns c)"
ip netns add "$(ns c)"
loose c eth0
start_daemon
ctl vdev show vc 2>/dev/null && fail "vc is kept, whose namespace has ended"
grep -q "vdevice .*/vc: .*not the one that it was created in, so it is deleted" "$T/vrdmad.log" || fail "the log does not say why"
ctl vdev create vc --netns "$(ns c)" --netdev eth0 >/dev/null || fail "vc cannot be made anew"

say "while its name is not there, it is lost; when another has the name, it is deleted"
kill_daemon
ip netns delete "$(ns c)"
start_daemon
is_lost vc || fail "vc is not lost"
ip netns add "$(ns c)"
loose c eth0
forgotten() { ! ctl vdev show vc 2>/dev/null >&2; }
wait_until 10 forgotten || fail "vc is kept, whose namespace has ended"
ctl vdev create vc --netns "$(ns c)" --netdev eth0 >/dev/null || fail "vc cannot be made anew"
kill_daemon
ip netns delete "$(ns c)"
boots() { # makes the state one of another boot
  python3 -c '
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE vdev SET boot_id = ?", ("another",))
db.commit()' "$S/state.db"
}
boots
start_daemon
is_lost vc || fail "vc is not lost"
ip netns add "$(ns c)"
loose c eth0
wait_until 10 is_there vc || fail "vc does not come back with its netns"
restart
is_there vc || fail "vc is not restored"

# changed_nothing PATTERN COMMAND...: COMMAND fails with one line, and nothing has changed, not even
# on disk.
changed_nothing() {
  local pattern=$1 status=0
  shift
  "$@" >"$T/out" 2>"$T/err" || status=$?
  [[ $status -eq 1 && $(wc -l <"$T/err") -eq 1 ]] || { cat "$T/err"; fail "$*: status $status"; }
  grep -qE "$pattern" "$T/err" || { cat "$T/err"; fail "$*: does not name '$pattern'"; }
  [[ $(everything) == "$before" ]] || fail "$*: something has changed"
  say "refused: $(cat "$T/err")"
}

say "a full disk"
before=$(everything)
dd if=/dev/zero of="$S/full" bs=4k status=none 2>/dev/null || true
# Some places are free.
for ((i = 0; i < 300; ++i)); do
  ctl vdev create "few$i" --netns "$(ns a)" --netdev eth0 --fabric "few$i" >/dev/null 2>&1 || break
done
[[ $i -lt 300 ]] || fail "the disk does not become full"
for ((j = 300; j < 700; ++j)); do
  ctl fabric set "far$j" --reach network >/dev/null 2>&1 || break
done
before=$(everything)
changed_nothing 'the disk is full' ctl vdev create vd --netns "$(ns a)" --netdev eth0 --tenant other
changed_nothing 'the disk is full' ctl fabric set "far$j" --reach network
[[ -z $(find "$R" -name 'vd*') ]] || fail "vd left something in the run directory"
rm "$S/full"
restart
[[ $(everything) == "$before" ]] || fail "not as it was before the full disk"
ctl quota set va qp=12 || fail "no change is possible after the disk has room again"

say "a second daemon, a read-only disk, a damaged file, a newer form"
no_start "the state in $S/state.db is in use by another vrdmad" "" info
no_start "another vrdmad \\(pid [0-9]+\\) already runs on $R" "$R" info
whole=$S
(cd "$T"; S=${S#"$T/"}; no_start "the state in $whole/state.db is in use by another vrdmad" other info)
[[ ! -e $T/other ]] || fail "a start that is refused makes directories: $(find "$T/other")"
stop_daemon
mount -o remount,ro "$S"
no_start "not writable"
mount -o remount,rw "$S"
cp "$S/state.db" "$T/good"
head -c 16384 /dev/urandom >"$S/state.db"
no_start damaged
cp "$T/good" "$S/state.db"
python3 -c '
import sqlite3, sys
sqlite3.connect(sys.argv[1]).execute("PRAGMA user_version=999")' "$S/state.db"
no_start "newer vrdmad"
cp "$T/good" "$S/state.db"
start_daemon
is_there va || fail "va is not there any more"
