#!/bin/bash
# full_disk.sh: what a full disk refuses, and what it does not.
#
#     netns a                netns b
#   +-----------+          +-----------+
#   | va -- eth0|   veth   |eth0 -- vb |    the state directory, the run directory and that of
#   +-----------+          +-----------+    the audit log: a small tmpfs each
. "$(dirname "$0")/lib.sh"
setup
mkdir -m 700 "$S"
mkdir "$R"
mount -t tmpfs -o size=400k,mode=700 tmpfs "$S"
mount -t tmpfs -o size=8m,mode=755 tmpfs "$R"
mkdir "$T/audit"
mount -t tmpfs -o size=8k,mode=755 tmpfs "$T/audit"
undo_mounts() { umount -l "$S" "$R" "$T/audit" 2>/dev/null || true; }
trap 'status=$? line=$BASH_COMMAND; undo_mounts; finish $status "$line"' EXIT
start_daemon
two_vdevices direct

names() { ctl vdev list | awk 'NR > 1 { print $1 }' | sort; }
# refused COMMAND...: one sentence that names the file, how much room it needs, and what to do.
refused() {
  "$@" >/dev/null 2>"$T/err" && fail "$* succeeds on a full disk"
  [[ $(wc -l <"$T/err") -eq 1 ]] || { cat "$T/err"; fail "$*: not one sentence"; }
  grep -qE "$S/state\.db: the disk is full: make room for [0-9]+ KiB on it and try again" "$T/err" ||
    { cat "$T/err"; fail "$*: another reason"; }
}
create() { ctl vdev create "$1" --netns "$(ns a)" --netdev eth0 --fabric "of-$1" >/dev/null; }
fill_with_vdevices() { # PREFIX
  for ((count = 0; count < 400; ++count)); do create "$1$count" 2>/dev/null || break; done
  [[ $count -lt 400 ]] || fail "the disk does not become full"
  say "the disk takes $count vdevices"
}
fill() { dd if=/dev/zero of="${1:-$S}/full" bs=4k status=none 2>/dev/null || true; }

say "a full disk refuses what makes the state larger, and nothing else"
fill_with_vdevices v
[[ $count -ge 17 ]] || fail "the log takes the disk from vdevices"
fill
before=$(names)
refused create more
[[ $(names) == "$before" ]] || fail "a vdevice that was refused is there"
[[ -z $(find "$R" -path '*more*') ]] || fail "it left something in the run directory"
for i in {1..100}; do ctl quota set va qp=$((100 + i)) || fail "the quota cannot be set for the ${i}th time"; done
for ((i = 3; i < count; i += 2)); do ctl vdev delete "v$i" || fail "v$i cannot be deleted"; done
create again || fail "there is no room for a vdevice in the place of one that was deleted"
ctl vdev delete again
before=$(names)

say "the next daemon takes over the sessions of programs"
tcp_server a nobody ibv_rc_pingpong -d va -g "$INDEX_A" -n 100 -p "$PORT"
taken=0
for how in kill_daemon stop_daemon; do
  $how
  fill
  start_daemon
  # The worker logs it, perhaps after the daemon's first answer.
  wait_until 20 all_taken_over $((++taken)) || fail "after $how: the session of the server is not taken over"
  [[ $(names) == "$before" ]] || fail "after $how: other vdevices"
  ctl vdev create "after" --netns "$(ns a)" --netdev eth0 --fabric after >/dev/null || fail "after $how: there is room, but no vdevice"
  ctl vdev delete after || fail "after $how: a vdevice cannot be deleted"
done
on b nobody ibv_rc_pingpong -d vb -g "$INDEX_B" -n 100 -p "$PORT" 10.0.0.1 >/dev/null || fail "the server does not work"
reap server 10
[[ $REAPED -eq 0 ]] || fail "the server ends with status $REAPED"

say "the same on a disk without any room, also for the log; then room is made"
before=$(names)
kill_daemon
rm "$S/full"
# All of the database is in the log, as an earlier vrdmad left it.
python3 - "$S" <<'END'
import os, sqlite3, sys
path = sys.argv[1] + "/state.db"
all, db = sqlite3.connect(":memory:"), sqlite3.connect(path)
db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.backup(all)
db.close()
for name in os.listdir(sys.argv[1]):
    os.unlink(sys.argv[1] + "/" + name)
db = sqlite3.connect(path)
db.executescript("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL")
all.backup(db)
os._exit(0)
END
[[ $(stat -c %s "$S/state.db") -le 4096 && -s $S/state.db-wal ]] || fail "not as an earlier vrdmad leaves it: $(ls -l "$S")"
chown "$DAEMON_USER" "$S"/state.db*
fill
start_daemon
[[ $(names) == "$before" ]] || fail "other vdevices"
grep -q "vdevices cannot be changed: write the state in $S/state.db: the disk is full" "$T/vrdmad.log" || fail "the log does not say it"
refused create more
on a nobody ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
refused ctl vdev delete v0
[[ $(names) == "$before" ]] || fail "a vdevice that cannot be deleted is not there"
mount -o remount,size=1m "$S"
ctl vdev delete v0 || fail "it cannot be deleted when the disk has room again"
create more || fail "no vdevice can be made when the disk has room again"
kill_daemon
start_daemon
[[ $(names) == $({ grep -v "^v0\$" <<<"$before"; echo more; } | sort) ]] || fail "not as it was before"

say "a full run directory: programs work, and the log says what the next daemon cannot take over"
tcp_server a nobody ibv_rc_pingpong -d va -g "$INDEX_A" -n 100 -p "$PORT"
taken=$(took_over)
fill "$R"
on a nobody ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
no_files() { grep -q "/va: a session has no files, so no other worker can take it over: make .*: No space left on device" "$T/vrdmad.log"; }
wait_until 10 no_files || fail "the log does not say that the session has no files"
spawn listener a nobody rping -s -a 10.0.0.1 -C 1
no_file() { grep -q "an rdma_cm session has no file, so no other daemon can take it over: make .*: No space left on device" "$T/vrdmad.log"; }
wait_until 10 no_file || fail "the log does not say that the session of rdma_cm has no file"
on b nobody rping -c -a 10.0.0.1 -C 1 >/dev/null || fail "rdma_cm does not work"
reap listener 10
[[ $REAPED -eq 0 ]] || fail "the listener ends with status $REAPED"
for how in kill_daemon stop_daemon; do
  $how
  fill "$R"
  start_daemon
  wait_until 20 all_taken_over $((++taken)) || fail "after $how: the session with files is not taken over"
done
on b nobody ibv_rc_pingpong -d vb -g "$INDEX_B" -n 100 -p "$PORT" 10.0.0.1 >/dev/null || fail "the server does not work"
reap server 10
[[ $REAPED -eq 0 ]] || fail "the server ends with status $REAPED"

say "a full disk of the audit log: changes are made, and no line of it is cut"
stop_daemon
start_daemon --audit-log "$T/audit/log"
set_quotas() { for i in {1..60}; do ctl quota set va qp=$((200 + i)) || fail "the quota cannot be set"; done; }
set_quotas
grep -q "write to the audit log $T/audit/log: No space left on device" "$T/vrdmad.log" || fail "the log does not say it"
mount -o remount,size=1m "$T/audit"
set_quotas
python3 - "$T/audit/log" <<'END' || fail "a line is cut"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert len(lines) > 60, len(lines)
END
