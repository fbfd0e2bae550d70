# shellcheck shell=bash
# Functions for tests that source lib.sh before: pairs of vrdma_takeover_flow that exchange data and check it, of all
# kinds, until the test ends them. $T/lib/flow is the program, 10.0.0.1 and 10.0.0.2 are in the namespaces a and b.
FLOWS=()  # names of their programs

# begin_moments MOMENTS PROGRAM [SEED]: the arguments of a test that kills at random moments. Sets `moments` and `seed`.
begin_moments() {
  WORKERS_END=1  # because they are killed
  moments=$1
  seed=${3:-$SRANDOM}
  cp "$2" "$T/lib/flow"
  say "$moments moments, seed $seed"
  RANDOM=$seed
}
# logged PATTERN: how many lines of the daemon's log match. has_logged COUNT PATTERN: whether so many do.
logged() { grep -cE "$1" "$T/vrdmad.log" || true; }
has_logged() { [[ $(logged "$2") -eq $1 ]]; }
# red_and_blue: the namespaces, with mediated vdevices ra and rb of tenant red, and ba and bb of tenant blue.
red_and_blue() {
  local tenant
  netns_add a b
  join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
  for tenant in red blue; do
    vdev_create "${tenant:0:1}a" a eth0 --tenant $tenant --no-direct
    vdev_create "${tenant:0:1}b" b eth0 --tenant $tenant --no-direct
  done
}
# other_worker WORKER: the workers of vrdmad are that program. The broker takes it from the directory of its own.
other_worker() {
  mkdir "$T/sbin"
  cp "$VRDMAD" "$(dirname "$VRDMAD")/vrdmad-helper" "$T/sbin"
  cp "$1" "$T/sbin/vrdmad-worker"
  VRDMAD=$T/sbin/vrdmad
}
# red_writes NUMBER PORT BYTES: the programs targetNUMBER in a and writerNUMBER in b, which writes so many bytes at once.
red_writes() {
  spawn "target$1" a nobody ib_write_bw -d ra -x "$(gid_index a ra 10.0.0.1)" -p "$2" -s "$3" -n 5
  wait_until 20 listens "target$1" "$2" || fail "ib_write_bw does not listen"
  spawn "writer$1" b nobody ib_write_bw -d rb -x "$(gid_index b rb 10.0.0.2)" -p "$2" -s "$3" -n 5 10.0.0.1
}
# begin_flow NAME DEVICE_A DEVICE_B PORT: the programs NAME-a and NAME-b.
begin_flow() {
  begin_flow_end "$1-a" a "$2" 10.0.0.1 "$4"
  wait_until 20 listens "$1-a" "$4" || fail "$1-a does not listen"
  begin_flow_end "$1-b" b "$3" 10.0.0.2 "$4" 10.0.0.1
}
begin_flow_end() { # NAME NAMESPACE DEVICE ADDRESS PORT [PEER]
  head -c 24 /dev/zero >"$T/$1.progress"
  chown 65534 "$T/$1.progress"
  spawn "$1" "$2" nobody "$T/lib/flow" "$3" "$(gid_index "$2" "$3" "$4")" "$5" "$T/$1.progress" "${HOW:-all}" "${@:6}"
  FLOWS+=("$1")
}
# flow_counts: how many messages each has sent and received.
flow_counts() {
  local name
  for name in "${FLOWS[@]}"; do od -An -v -t u8 -N 16 "$T/$name.progress"; done | xargs
}
# longest_gap: in which one of them got nothing, in milliseconds, since the last time.
longest_gap() {
  local name
  for name in "${FLOWS[@]}"; do
    od -An -v -t u8 -j 16 "$T/$name.progress"
    dd if=/dev/zero of="$T/$name.progress" bs=8 seek=2 count=1 conv=notrunc status=none
  done | awk '{ if ($1 > most) most = $1 } END { print int(most / 1000) }'
}
# flows_go_on WHEN: each sends and receives more than can be in flight at once.
flows_go_on() {
  local before
  read -ra before <<<"$(flow_counts)"
  wait_until 60 flows_went_on "$1" "${before[@]}" ||
    fail "$1: not all programs go on: $(flow_counts), before: ${before[*]}"
}
flows_went_on() { # WHEN COUNTS
  local name i now when=$1
  shift
  for name in "${FLOWS[@]}"; do
    ended "${PID[$name]}" && fail "$when: $name ended: $(tail -n 1 "$T/$name.log")"
  done
  read -ra now <<<"$(flow_counts)"
  for i in "${!now[@]}"; do
    [[ ${now[i]} -gt $((${@:i + 1:1} + 64)) ]] || return 1
  done
}
# only_red_failed NAME...: these programs of red did. blue's flow goes on by its worker, $blue, and red's device can be
# opened.
only_red_failed() {
  local name
  for name in "$@"; do
    reap "$name" 30
    [[ $REAPED -ne 0 ]] || fail "$name ends as if nothing had happened"
  done
  say "blue has noticed nothing, and red can begin anew"
  FLOWS=(blue-a blue-b)
  flows_go_on "after the sessions of red"
  [[ $(worker_of blue-a) == "$blue" ]] || fail "the worker of blue is another one"
  LIMIT=20 on a nobody ibv_devinfo -d ra >/dev/null || fail "ra cannot be opened any more"
}
# end_flows WHEN: they end, and have found all right.
end_flows() {
  local name
  for name in "${FLOWS[@]}"; do kill -TERM "${PID[$name]}" || fail "$1: $name ended: $(tail -n 1 "$T/$name.log")"; done
  for name in "${FLOWS[@]}"; do
    reap "$name" 30
    [[ $REAPED -eq 0 ]] || fail "$1: $name ends with status $REAPED: $(tail -n 1 "$T/$name.log")"
    no_sanitizer "$name" "$T/$name.log"
    say "$name: $(tail -n 1 "$T/$name.log")"
  done
  FLOWS=()
}
