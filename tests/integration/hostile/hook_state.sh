#!/bin/bash
# hook_state.sh: what a user's hook writes into requests goes to the state on disk as text, never as SQL; the state does not
# grow by what has ended; a user, and a user with a range of subordinate ones, has a number of containers at most.
#
#     netns a: of root            namespaces of users 1001, 231072, ...
#   +------------------+       +-----------------------------------------+
#   | va -- eth0       |       | eth0, vrdma0: hook_texts.py asks for it |
#   +------------------+       +-----------------------------------------+
. "$(dirname "$0")/../lib.sh"
setup
here=$(dirname "$(realpath "$0")")
MOST=4
cat >"$T/classes.conf" <<END
users = *
most = $MOST
END
cp "$here/hook_texts.py" "$here/../hook_client.py" "$T/"
start_daemon --classes "$T/classes.conf"
netns_add a
loose a eth0
ip_in a address add 10.0.0.1/24 dev eth0
vdev_create va a eth0 --tenant red
user_of() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
user_of 1001 unshare --user --net true 2>/dev/null || skip "users cannot make namespaces here"
user_container() { # NAME USER: a process in a namespace of the user
  setpriv --reuid "$2" --regid "$2" --clear-groups unshare --user --map-root-user --net sleep 1000 >/dev/null 2>&1 &
  PID[$1]=$!
  is_apart() { [[ $(stat -Lc %i "/proc/${PID[$1]}/ns/net") != "$(stat -Lc %i /proc/self/ns/net)" && $(<"/proc/${PID[$1]}/comm") == sleep ]]; }
  wait_until 20 is_apart "$1" || fail "$1 does not start"
}
hook() { user_of "$1" python3 "$T/hook_texts.py" "$R/hook.sock" "${@:2}"; } # USER PID COMMAND WORD
labels() { ctl vdev list -o json | python3 -c '
import json, sys
print(*sorted(str((v["name"], v.get("labels"), v["tenant"])) for v in json.load(sys.stdin)), sep="\n")'; }
size() { stat -c %s "$S/state.db"; }
restart() {
  kill_daemon
  start_daemon --classes "$T/classes.conf"
}

say "texts"
cat >"$T/texts" <<'END'
x');DROP/**/TABLE/**/vdev;--
",(SELECT/**/1));DELETE/**/FROM/**/vdev_label;--
%s%n${IFS}$(reboot)`reboot`{{7*7}}
../../../../state.db
a b
a\nb
a\x1b[2Jb
a\x00b
\xff\xfe
END
python3 -c 'print("y" * 63); print("z" * 5000)' >>"$T/texts"
user_container theirs 1001
hook 1001 "${PID[theirs]}" texts "$T/texts" >"$T/out" || fail "the hook fails: $(<"$T/out")"
cat "$T/out"
[[ $(grep -c ^taken "$T/out") -eq $MOST ]] || fail "not $MOST are taken"
[[ $(grep -c '^refused.*which allows' "$T/out") -ge 1 ]] || fail "none is one too many"
[[ $(grep -c '^refused.*\(characters\|has no end\)' "$T/out") -eq 6 ]] || fail "texts that are none are taken"
labels >"$T/before"
grep -qF "x');DROP/**/TABLE/**/vdev;--" "$T/before" || fail "the text is another one: $(<"$T/before")"
grep -q "'va'" "$T/before" || fail "va is not there: $(<"$T/before")"
restart
[[ $(labels) == "$(<"$T/before")" ]] || fail "the next daemon has other vdevices: $(labels), before: $(<"$T/before")"

say "a user has so many containers, whatever ids it gives one process"
taken=$(hook 1001 "${PID[theirs]}" ids 20)
[[ $taken -eq 0 ]] || fail "$taken more are taken"
kill -9 "${PID[theirs]}"
gone() { [[ $(ctl vdev list -o json | grep -c '"name": "vrdma0"') -eq 0 ]]; }
wait_until 5 gone || fail "it outlives its container: $(ctl vdev list)"

say "what comes and goes leaves nothing on disk"
user_container theirs 1001
hook 1001 "${PID[theirs]}" churn 20
before=$(size)
hook 1001 "${PID[theirs]}" churn 200
wait_until 5 gone || fail "a vdevice is left: $(ctl vdev list)"
say "the state had $before bytes, and has $(size)"
[[ $(size) -le $((before + 16384)) ]] || fail "the state grows"
[[ $(stat -c %s "$S/state.db-wal") -lt $((8 << 20)) ]] || fail "its log grows: $(ls -l "$S")"

say "many subordinate users of one person"
total=0
for ((i = 0; i < 20; ++i)); do
  user=$((231072 + i * 7))
  user_container "sub$i" $user
  taken=$(hook $user "${PID[sub$i]}" ids 6) || fail "the hook fails"
  total=$((total + taken))
done
say "they have $total containers"
[[ $total -ge $((8 * MOST)) ]] || fail "users of one range cannot have $((8 * MOST)) containers"
[[ $total -le $((16 * MOST)) ]] || fail "one person has $total containers of a class that allows $MOST"
user_container another 300000
[[ $(hook 300000 "${PID[another]}" ids 6) -eq $MOST ]] || fail "a user of another range is refused"
restart
[[ $(ctl vdev list -o json | grep -c '"name": "va"') -eq 1 ]] || fail "va is lost"
