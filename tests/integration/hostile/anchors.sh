#!/bin/bash
# anchors.sh: a worker of tenant red that was taken over writes what it likes into the anchors of its sessions, before it
# ends or the daemon is replaced. Nothing of that concerns blue.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../flows.sh"
setup
need_worker_processes
WORKERS_END=1
file="$(dirname "$0")/../session_file.py"
cp "$1" "$T/lib/flow"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
for tenant in red blue; do
  for space in a b; do vdev_create "${tenant:0:1}$space" $space eth0 --tenant $tenant --no-direct; done
done
begin_flow blue ba bb 18521
begin_flow red ra rb 18520
flows_go_on "at first"
anchors_of() { # NAME: of the session of a background program
  local each
  for each in "$R"/state/*.anchors; do
    if [[ $("$file" pid "$each" 2>/dev/null) == "${PID[$1]}" ]]; then echo "$each"; return; fi
  done
  fail "$1 has no session: $(ls "$R/state")"
}
restart() {
  kill_daemon
  start_daemon
}

say "epochs: no worker chooses the next one, and none stays"
seen=()
for forged in 0xfffffe 0xffffff 0 0xffffffff; do
  anchors=$(anchors_of red-a)
  "$file" epoch "$anchors" $forged >/dev/null
  restart
  flows_go_on "after epoch $forged"
  seen+=("$("$file" epoch "$(anchors_of blue-a)")")
  mapfile -t doomed < <(workers)
  kill -9 "${doomed[@]}"
  flows_go_on "after the workers"
  seen+=("$("$file" epoch "$(anchors_of blue-a)")")
done
say "${seen[*]}"
[[ $(printf '%s\n' "${seen[@]}" | sort -u | wc -l) -eq ${#seen[@]} ]] || fail "an epoch comes again: ${seen[*]}"

say "records without number, of a kind that there is and of one that there is not"
for kind in 9 1; do
  anchors=$(anchors_of red-a)
  "$file" fill "$anchors" $kind
  mapfile -t doomed < <(workers)
  kill -9 "${doomed[@]}"
  refused() { grep -qE "$anchors (is damaged|has too many records)" "$T/vrdmad.log"; }
  wait_until 20 refused || fail "they are read: $(tail -n 3 "$T/vrdmad.log")"
  for each in a b; do
    kill -9 "${PID[red-$each]}" 2>/dev/null || true
    reap "red-$each" 10
  done
  FLOWS=(blue-a blue-b)
  begin_flow red ra rb 18520
  flows_go_on "beside records of kind $kind"
done
end_flows
