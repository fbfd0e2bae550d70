# shellcheck shell=bash disable=SC2012
# Functions for integration tests, which source this file. A test runs as root with VRDMA_BUILD set:
#
#   VRDMA_BUILD=build/release tests/integration/pingpong.sh direct root
#
# VRDMA_DAEMON selects a vrdmad of another build than that of the programs and libraries; see threads.cmake.
# VRDMA_LIBRARIES selects libraries of another build; see tests/interop/older.
#
# Each test has its own namespaces, run directory and state directory, all named after its process, so that
# tests can run in parallel. On every exit `finish` removes everything, and fails the test if our programs
# left something behind that they should have removed.
set -euo pipefail

BUILD=$(realpath -m "${VRDMA_BUILD:?is not set: the build directory to test}")
VRDMAD=${VRDMA_DAEMON:-$BUILD/sbin/vrdmad}
LIBRARIES=${VRDMA_LIBRARIES:-$BUILD/lib/vrdma}
NAME=$(basename "$0" .sh)
readonly BUILD LIBRARIES NAME
PORT=18515  # where perftest and ibv_*_pingpong meet
DAEMON=     # process id of vrdmad
# A user of no other program, where the user namespace has it.
DAEMON_USER=${VRDMA_TEST_USER:-64789}
awk -v uid="$DAEMON_USER" '$1 <= uid && uid < $1 + $3 { found = 1 } END { exit !found }' /proc/self/uid_map || DAEMON_USER=root
readonly DAEMON_USER
declare -A PID=()  # background programs by name
NAMESPACES=()
readonly REPORT='(ERROR|WARNING): \w+Sanitizer|runtime error:'  # a sanitizer's, in what is said

say() { echo "-- $*"; }
skip() { echo "skipped: $*"; exit 77; }
fail() { failed "$@"; exit 1; }
# failed WORDS...: prints the reason of a failure. Its first line says how long a wait was: see tests/verdict.py.
failed() {
  local words=$* first
  first=${words%%$'\n'*}
  FAILED=1
  echo "FAILED: $first${WAITED:+ (waited $WAITED s)}${words:${#first}}" >&2
}

# ---- begin and end ------------------------------------------------------------------------------

setup() {
  [[ $EUID -eq 0 ]] || skip "needs root, to make network namespaces"
  if [[ -n ${VRDMA_DAEMON:-} && ! -x $BUILD/bin/vrdmactl ]]; then
    skip "needs programs and libraries without a sanitizer, and $BUILD is not built"
  fi
  for program in "$VRDMAD" "$BUILD/bin/vrdmactl"; do
    [[ -x $program ]] || fail "$program is not built"
  done
  T=$(mktemp -d "/tmp/vrdma-$NAME.XXXXXX")
  chmod 755 "$T"  # uid 65534 runs programs here
  R=$T/run
  S=$T/state
  trap 'finish $? "$BASH_COMMAND"' EXIT
  trap 'exit 130' INT TERM
  # Copies the libraries, because other users may not be able to enter a build directory.
  mkdir "$T/lib"
  cp -L "$LIBRARIES"/*.so.* "$T/lib/"
  ENVIRONMENT=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LD_LIBRARY_PATH="$T/lib" VRDMA_RUN_DIR="$R")
  if [[ -n ${VRDMA_TEST_PRELOAD:-} ]]; then
    # Third-party programs may leak; errors of vrdma's libraries abort them.
    ENVIRONMENT+=(LD_PRELOAD="$VRDMA_TEST_PRELOAD" ASAN_OPTIONS=detect_leaks=0)
  fi
}

finish() { # exit status of the test, the command that ended it
  local status=$1 pid
  trap - EXIT
  trap '' INT TERM
  set +e
  [[ $status -eq 0 || $status -eq 77 || -n ${FAILED:-} ]] || echo "FAILED: $2" >&2
  for pid in "${PID[@]}"; do kill -9 "$pid" 2>/dev/null; done
  if [[ $status -eq 0 && -n $DAEMON ]]; then
    stop_daemon || status=1
  elif [[ -n $DAEMON ]]; then
    kill -9 "$DAEMON" 2>/dev/null
  fi
  wait 2>/dev/null
  for ns in "${NAMESPACES[@]}"; do
    [[ ! -e $T/hidden-$ns ]] || show_netns "${ns#vr$$-}"
    kill_all_in "$ns"
    ip netns delete "$ns"
  done
  if [[ $status -eq 0 ]] && find /dev/shm -maxdepth 1 -iname '*vrdma*' | grep .; then
    echo "FAILED: shared memory is left in /dev/shm" >&2
    status=1
  fi
  if [[ $status -ne 0 && $status -ne 77 ]]; then
    for log in "$T"/*.log; do
      [[ -s $log ]] && { echo "---- $(basename "$log"), its last lines"; tail -n 60 "$log"; }
    done
  fi
  rm -rf "$T"
  exit "$status"
}

# wait_until SECONDS COMMAND...: true as soon as the command succeeds, false after SECONDS. A test
# that fails only here is reported as late: see tests/verdict.py.
WAITED=
wait_until() {
  local seconds=$1 end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  WAITED=
  until "$@"; do
    [[ ${EPOCHREALTIME/./} -lt $end ]] && { sleep 0.05; continue; }
    WAITED=$seconds
    return 1
  done
}
# stays SECONDS COMMAND...: the command prints the same again after SECONDS.
stays() {
  local before
  before=$("${@:2}")
  sleep "$1"
  [[ $("${@:2}") == "$before" ]]
}
# Kills every process of a network namespace; some may end by themselves meanwhile.
kill_all_in() { ip netns pids "$1" 2>/dev/null | xargs -r kill -9 2>/dev/null || true; }
# ended PID: the process has ended, reaped or not. The shell may reap it while grep runs.
ended() { [[ ! -e /proc/$1/stat ]] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null || [[ ! -e /proc/$1/stat ]]; }

# ---- namespaces ---------------------------------------------------------------------------------

# ns a: the name of this test's namespace "a". enter a: words that run a command in it. (ip -n and
# "ip netns exec" also remount "/", which fails in a chroot where it is not a mount point.)
ns() { echo "vr$$-$1"; }
enter() { echo "nsenter --net=/run/netns/$(ns "$1") --"; }
ip_in() { $(enter "$1") ip "${@:2}"; }

netns_add() {
  local n
  for n in "$@"; do
    ip netns add "$(ns "$n")"
    NAMESPACES+=("$(ns "$n")")
    ip_in "$n" link set lo up
  done
}

# hide_netns a, show_netns a: removes and restores its name; processes in it continue.
hide_netns() { move_mount "/run/netns/$(ns "$1")" "$T/hidden-$(ns "$1")"; }
show_netns() { move_mount "$T/hidden-$(ns "$1")" "/run/netns/$(ns "$1")"; }
move_mount() { # FROM TO: of files
  touch "$2"
  mount --bind "$1" "$2"
  umount "$1"
  rm "$1"
}

# join A DEV ADDRESS/LEN B DEV ADDRESS/LEN: a veth pair between two namespaces. (Run from outside,
# `ip link add eth0 netns ...` fails on Linux 6.1 if there is another eth0.)
join() {
  ip_in "$1" link add "$2" mtu 4200 type veth peer name "$5" netns "$(ns "$4")"
  ip_in "$4" link set "$5" mtu 4200
  ip_in "$1" address add "$3" dev "$2"
  ip_in "$4" address add "$6" dev "$5"
  ip_in "$1" link set "$2" up
  ip_in "$4" link set "$5" up
}

# bad_wire OPTIONS...: a link between the eth0 of a and of b that it makes, by vrdma-bad-wire, whose log is $T/wire.log.
bad_wire() {
  rm -f "$T/wire.log"
  "$BUILD/lib/vrdma/vrdma-bad-wire" "/run/netns/$(ns a):eth0" "/run/netns/$(ns b):eth0" "$@" >"$T/wire.log" 2>&1 &
  PID[wire]=$!
  wait_until 5 grep -qs ready "$T/wire.log" || fail "there is no wire: $(<"$T/wire.log")"
}

# loose A DEV [MTU]: a netdev in A that is up, has a carrier and reaches nothing: a veth pair whose
# other end is unused. (Not every kernel has dummies.)
loose() {
  loose_commands "${@:2}" | ip_in "$1" -batch -
}
loose_commands() { # DEV [MTU]
  echo "link add $1 mtu ${2:-1500} type veth peer name $1-end"
  echo "link set $1 up"
  echo "link set $1-end up"
}

# ---- the daemon ---------------------------------------------------------------------------------

# ThreadSanitizer must judge our locks alone: a write to one socket does not order a read from
# another one (io_sync). More workers give more chances of a race.
start_daemon() { # [arguments of vrdmad]
  launch_daemon "$@"
  wait_until 20 daemon_answers || fail "vrdmad does not answer on its admin socket"
}
launch_daemon() { # the same, without a wait
  env -u VRDMA_RUN_DIR ASAN_OPTIONS=detect_leaks=1 TSAN_OPTIONS=io_sync=0 \
    "$VRDMAD" --user "$DAEMON_USER" --run-dir "$R" --state-dir "$S" \
    --log-level debug "$@" \
    >>"$T/vrdmad.log" 2>&1 &
  DAEMON=$!
}
daemon_answers() {
  ended "$DAEMON" && fail "vrdmad ended while it started"
  [[ -S $R/admin.sock ]] && ctl vdev list >/dev/null 2>&1
}

is_serving() { ctl vdev list >/dev/null 2>&1; }
serves_or_ended() { ended "$DAEMON" || is_serving; }

kill_daemon() {
  kill -9 "$DAEMON"
  wait "$DAEMON" 2>/dev/null || true
  DAEMON=
}

# Stops vrdmad and checks that it exits cleanly and leaves nothing.
stop_daemon() {
  local pid=$DAEMON status=0
  DAEMON=
  kill -TERM "$pid" || { echo "FAILED: vrdmad is not running any more" >&2; return 1; }
  wait_until 15 ended "$pid" || { kill -9 "$pid"; failed "vrdmad does not end"; return 1; }
  wait "$pid" || status=$?
  if grep -m 1 -A 60 -E "$REPORT" "$T/vrdmad.log"; then
    echo "FAILED: vrdmad's log has a sanitizer's report" >&2
    return 1
  fi
  # A call that its filter does not allow ends a worker, and the next one may hide that.
  if [[ -z ${WORKERS_END:-} ]] && grep ' the worker of .* is lost:' "$T/vrdmad.log" >&2; then
    echo "FAILED: a worker ended" >&2
    return 1
  fi
  [[ $status -eq 0 ]] || { echo "FAILED: vrdmad ends with status $status" >&2; return 1; }
  if [[ -d $R ]] && find "$R" -type s | grep .; then
    echo "FAILED: vrdmad left sockets in its run directory" >&2
    return 1
  fi
}

ctl() { VRDMA_RUN_DIR=$R timeout 30 "$BUILD/bin/vrdmactl" "$@"; }

vdev_create() { # NAME NAMESPACE DEV [further arguments of vrdmactl vdev create]
  local name=$1 space=$2 dev=$3
  shift 3
  ctl vdev create "$name" --netns "$(ns "$space")" --netdev "$dev" "$@" >/dev/null
}

# socket_of VDEVICE: the path of its session socket, which does not contain its name.
socket_of() { ctl vdev show "$1" -o json | sed -nE 's/^ *"socket": "(.*)",$/\1/p'; }
# cookie_of NAMESPACE: its cookie, which identifies it.
cookie_of() {
  $(enter "$1") python3 -c '
import socket, struct
print(struct.unpack("Q", socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, 71, 8))[0])'
}

# helper NAME: the process id of the daemon's broker, intake or stopper; nothing if it has ended.
helper() { pgrep -P "$DAEMON" -x "vrdmad-$1" || true; }
# workers: the process ids of its workers.
workers() {
  local broker
  broker=$(helper broker)
  [[ -z $broker ]] || pgrep -P "$broker" -x vrdmad-worker || true
}
# worker_of NAME: the worker that has a descriptor of the background program's memory.
worker_of() {
  local worker
  for worker in $(workers); do
    if [[ -n $(find "/proc/$worker/fd" -lname "/proc/${PID[$1]}/mem" 2>/dev/null) ]]; then echo "$worker"; fi
  done
}
# is_served NAME: a worker has a session of the background program.
is_served() { [[ -n $(worker_of "$1") ]]; }
# crash_workers NAME...: crashes the workers that serve these background programs, until the daemon ends their sessions.
crash_workers() {
  local worker _
  for _ in 1 2 3; do
    wait_until 10 have_worker_or_ended "$@" || fail "no other worker takes over the sessions of $*"
    [[ -n $worker ]] || break
    kill -SEGV "$worker"
    wait_until 10 ended "$worker" || fail "the worker goes on"
  done
  wait_until 10 grep -q "$END_OF_SESSIONS" "$T/vrdmad.log" || fail "the sessions of $* go on"
}
readonly END_OF_SESSIONS='all sessions of .* end: its worker crashed three times within a minute'
have_worker_or_ended() { # NAME...: sets `worker`
  local name
  for name in "$@"; do
    worker=$(worker_of "$name" | head -n 1)
    [[ -z $worker ]] || return 0
  done
  grep -q "$END_OF_SESSIONS" "$T/vrdmad.log"
}
# took_over: how many sessions workers have taken over. The daemon answers before they do.
took_over() { grep -c 'took over the session' "$T/vrdmad.log" || true; }
all_taken_over() { [[ $(took_over) -ge $1 ]]; } # COUNT
no_session_files() { [[ -z $(ls "$R/state") ]]; }
need_worker_processes() {
  [[ -x $(dirname "$VRDMAD")/vrdmad-worker ]] || skip "the workers of this build are threads"
}
# What vrdmad holds, one kind per line, to compare before and after. gRPC's own threads come and go: an extra one of its timer
# stays longer than a test waits.
holdings() {
  echo "fds $(ls "/proc/$DAEMON/fd" | wc -l)"
  echo "fds of the broker $(ls "/proc/$(helper broker)/fd" | wc -l)"
  echo "memfds $(find "/proc/$DAEMON/fd" -lname '*memfd:*' | wc -l)"
  echo "mappings of memfds $(grep -c memfd: "/proc/$DAEMON/maps")"
  echo "threads $(cat "/proc/$DAEMON/task"/*/comm 2>/dev/null | grep -cvE '^(grpc_|default-exec|resolver-exec)')"
  echo "sockets in the run directory $(find "$R" -type s | wc -l)"
}
# Succeeds if vrdmad holds no more than that; less is fine, because objects may have been released
# since.
holds_only() {
  paste -d '|' <(holdings) - <<<"$1" |
    awk -F'|' '{ n = split($1, now, " "); m = split($2, then, " "); if (now[n] + 0 > then[m] + 0) exit 1 }'
}

# ---- packages ------------------------------------------------------------------------------------

# One test at a time, because cpack puts libraries into the build directory before it packs them.
build_packages() { # in $T/packages
  mkdir "$T/build"
  (cd "$T/build" && flock "$BUILD/CPackConfig.cmake" cpack --config "$BUILD/CPackConfig.cmake" -B "$T/build" \
    -D CPACK_OUTPUT_FILE_PREFIX="$T/packages" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip) >"$T/cpack.log" 2>&1 ||
    fail "cpack fails"
}
# copy_host DIR: DIR/root is a copy of this host, DIR/changed what is changed in it. Call in a mount namespace.
copy_host() {
  mount -t tmpfs tmpfs "$1"
  mkdir "$1"/{changed,work,root}
  mount -t overlay -o "lowerdir=/,upperdir=$1/changed,workdir=$1/work" overlay "$1/root"
  mount -t proc proc "$1/root/proc"
  mount --rbind /sys "$1/root/sys"
  mount --rbind /dev "$1/root/dev"
  mount -t tmpfs tmpfs "$1/root/run"
  mount -t tmpfs tmpfs "$1/root/tmp"
}

# ---- programs on the drop-in library ------------------------------------------------------------

# demo_rows FILE: how many measurements of vrdma-sandbox --demo are in it.
demo_rows() { grep -cE '^[a-z ]+ [0-9.]+ us +[0-9.]+ GiB/s$' "$1"; }

# user_prefix root|nobody: words that run a program as that user.
user_prefix() {
  case $1 in
    root) ;;
    nobody) echo "setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all" \
                 "--inh-caps=-all --no-new-privs" ;;
    *) fail "'$1' is neither root nor nobody" ;;
  esac
}

# on NAMESPACE USER COMMAND...: runs it there, in a minimal environment.
on() {
  local space=$1 user=$2
  shift 2
  # shellcheck disable=SC2046  # words
  $(enter "$space") $(user_prefix "$user") \
    timeout -k 5 "${LIMIT:-60}" env -i "${ENVIRONMENT[@]}" "$@"
}

# spawn NAME NAMESPACE USER COMMAND...: the same in the background; ${PID[NAME]} is the program
# itself, its output is in $T/NAME.log.
spawn() {
  local name=$1 space=$2 user=$3
  shift 3
  (
    cd "$T"
    # shellcheck disable=SC2046
    exec $(enter "$space") $(user_prefix "$user") env -i "${ENVIRONMENT[@]}" "$@"
  ) >"$T/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
}

# reap NAME SECONDS: waits until the program ends and fails after SECONDS; its exit status is in
# $REAPED.
reap() {
  local name=$1 pid=${PID[$1]}
  wait_until "$2" ended "$pid" || fail "$name still runs after $2 s"
  REAPED=0
  wait "$pid" || REAPED=$?
  unset "PID[$name]"
}

# kill_programs NAME...: some may end by themselves meanwhile, because their peer has ended.
kill_programs() {
  local name
  for name in "$@"; do
    kill -9 "${PID[$name]}" 2>/dev/null || true
    reap "$name" 5
  done
}

# listens NAME [PORT]: the background program waits for a TCP connection.
listens() {
  local pid=${PID[$1]} hex
  ended "$pid" && fail "$1 ended before its client came"
  printf -v hex %04X "${2:-$PORT}"
  grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:0000 0A " "/proc/$pid/net/tcp" "/proc/$pid/net/tcp6"
}

# listening VDEVICE: a program listens on it by rdma_cm.
listening() { [[ $(ctl conn list "$1") == *LISTEN* ]]; }

# tcp_server NAMESPACE USER COMMAND...: spawns `server` and waits until it listens on $PORT.
tcp_server() {
  spawn server "$@"
  wait_until 20 listens server || fail "${*:3}: the server does not listen: $(<"$T/server.log")"
}

# listening_server NAMESPACE USER COMMAND...: spawns `server` and waits until there is one more
# listener by rdma_cm than before, because a killed one may still be listed.
listening_server() { listening_program server "$@"; }
listening_program() { # NAME NAMESPACE USER COMMAND...
  local before
  before=$(cm_listeners)
  spawn "$@"
  wait_until 20 cm_listens_since "$before" "$1" || fail "${*:4}: it does not listen: $(<"$T/$1.log")"
}
cm_listeners() { grep -c 'port [0-9]* listens' "$T/vrdmad.log" || true; }
cm_listens_since() { ended "${PID[${2:-server}]}" || [[ $(cm_listeners) -gt $1 ]]; } # COUNT [NAME]

# datagram_server NAMESPACE PORT USER COMMAND...: spawns `server` and waits until a program there has bound the port.
datagram_server() {
  spawn server "$1" "${@:3}"
  wait_until 20 takes_datagrams "$1" "$2" || fail "${*:4}: nobody has the port"
}
takes_datagrams() { # NAMESPACE PORT
  local hex
  ended "${PID[server]}" && fail "the server ended before its client came"
  printf -v hex %04X "$2"
  $(enter "$1") grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex " /proc/self/net/udp /proc/self/net/udp6
}

# udpong_client NAMESPACE USER OPTIONS...: client_recv() of udpong.c polls for a reply for 1 ms, takes a later one for lost,
# sends again and takes the late reply for the new one. A run that has fallen behind may never end, and is restarted.
udpong_client() {
  local attempt
  for attempt in 1 2 3 4 5 6 7 8; do
    LIMIT=10 on "$1" "$2" udpong "${@:3}" >"$T/client.log" 2>&1 && break
    say "udpong ${*:3}: attempt $attempt has not come to its end"
  done
  grep -q '^custom' "$T/client.log" || fail "udpong ${*:3}: it does not come to its end: $(<"$T/client.log")"
  no_sanitizer "udpong ${*:3}" "$T/client.log" "$T/server.log"
}

# both_end_well COMMAND...: the client, which is that command, and its server end, successfully.
both_end_well() {
  reap client "${LIMIT:-60}"
  # Debian 12's rping: at its end main() destroys the event channel in whose rdma_get_cm_event() cm_thread() may be, which
  # then calls exit(). (Later versions of rping.c end that thread first, by an eventfd.)
  if [[ $1 == rping* && $(<"$T/client.log") == 'rdma_get_cm_event: Bad file descriptor' ]]; then REAPED=0; fi
  [[ $REAPED -eq 0 ]] || fail "$*: the client ends with status $REAPED: $(<"$T/client.log")"
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "$*: the server ends with status $REAPED: $(<"$T/server.log")"
  no_sanitizer "$*" "$T/server.log" "$T/client.log"
}

# cm_perftest NAMESPACE-OF-SERVER NAMESPACE-OF-CLIENT USER ADDRESS COMMAND...: a pair of perftest with -R.
cm_perftest() {
  local _
  for _ in {1..5}; do
    listening_server "$1" "$3" "${@:5}"
    spawn client "$2" "$3" "${@:5}" "$4"
    wait_until 60 ended "${PID[client]}" || fail "${*:5}: the client does not end"
    if refused_again; then continue; fi
    both_end_well "${@:5}"
    return
  done
  fail "${*:5}: the client always comes before its server"
}
# refused_again: perftest's -R exchanges its parameters by one connection of rdma_cm, closes it and makes a second one
# (create_comm_struct(), then rdma_client_connect() in perftest_communication.c) without a sign that the server listens
# again, and does not survive a rejection. If that is how it ended, its server is killed too, for another attempt.
refused_again() {
  grep -qE 'EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)' "$T/client.log" || return 1
  kill_programs client server
}

# no_sanitizer WHAT FILE...: fails if a program's output contains a sanitizer's report.
no_sanitizer() {
  if grep -qE "$REPORT" "${@:2}"; then fail "$1: a sanitizer's report"; fi
}

# same_mistakes stream|datagram USER COMMAND...: invalid calls on sockets over RDMA, which COMMAND
# gives to a program, return the kernel's errors.
same_mistakes() {
  local words=(python3 "$T/rsocket_mistakes.py" "$1" 10.0.0.1 7779)
  say "mistakes are answered as by the kernel's: $1"
  cp "$(dirname "${BASH_SOURCE[0]}")/rsocket_mistakes.py" "$T/"
  chmod 644 "$T/rsocket_mistakes.py"
  on a "$2" "${words[@]}" >"$T/kernel.log" 2>&1 || fail "mistakes with the kernel's"
  on a "$2" "${@:3}" "${words[@]}" >"$T/rdma.log" 2>&1 || fail "mistakes"
  cmp "$T/kernel.log" "$T/rdma.log" || fail "a mistake is answered otherwise than by the kernel's"
}

# gid_index NAMESPACE DEVICE ADDRESS: the address's index in the device's GID table.
gid_index() {
  on "$1" root ibv_devinfo -v -d "$2" | sed -nE "s/^\s*GID\[ *([0-9]+)\]:\s*(::ffff:)?$3,.*/\1/p" |
    grep . || fail "$2 has no GID for $3"
}

# stat_of SCOPE COUNTER...: the sum of these counters (vrdmactl stats).
stat_of() {
  ctl -o json stats "$1" | python3 -c '
import json, sys
print(sum(row["value"] for row in json.load(sys.stdin) if row["name"] in sys.argv[1:]))' "${@:2}"
}

# works VDEVICE: its programs' requests succeed and go on. A session or a queue pair may exist long before that.
works() {
  local before now
  before=$(stat_of "$1" work_requests_direct work_requests_connected) || return 1
  sleep 0.2
  now=$(stat_of "$1" work_requests_direct work_requests_connected) || return 1
  [[ $now -gt $before ]]
}

# ---- two vdevices in one fabric ------------------------------------------------------------------

# two_vdevices direct|mediated [further arguments of vrdmactl vdev create]: namespaces a (10.0.0.1)
# and b (10.0.0.2), vdevices va and vb, of one tenant (direct) or of two in one fabric (mediated).
two_vdevices() {
  netns_add a b
  join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
  case $1 in
    direct) local of_a=(--tenant red) of_b=(--tenant red) ;;
    mediated)  # some tests add addresses later
      local of_a=(--tenant red --fabric shared --addresses 0.0.0.0/0,::/0)
      local of_b=(--tenant blue --fabric shared --addresses 0.0.0.0/0,::/0)
      ;;
    *) fail "'$1' is neither direct nor mediated" ;;
  esac
  vdev_create va a eth0 "${of_a[@]}" "${@:2}"
  vdev_create vb b eth0 "${of_b[@]}" "${@:2}"
  INDEX_A=$(gid_index a va 10.0.0.1)
  INDEX_B=$(gid_index b vb 10.0.0.2)
}

# two_hosts [further arguments of vrdmactl vdev create]: the same as on two hosts: va and vb are in two fabrics that reach
# the network, so each is to the other what an endpoint of another host is.
two_hosts() {
  netns_add a b
  join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
  vdevices_of_two_hosts "$@"
  INDEX_A=$(gid_index a va 10.0.0.1)
  INDEX_B=$(gid_index b vb 10.0.0.2)
}
# two_ends direct|mediated|network [further arguments of vrdmactl vdev create]: one of the two above.
two_ends() {
  if [[ $1 == network ]]; then two_hosts "${@:2}"; else two_vdevices "$@"; fi
}
vdevices_of_two_hosts() { # in a and b, on eth0
  vdev_create va a eth0 --tenant red --fabric left --addresses 0.0.0.0/0,::/0 "$@"
  vdev_create vb b eth0 --tenant blue --fabric right --addresses 0.0.0.0/0,::/0 "$@"
  local fabric
  for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done
}

# spawn_writes NAME DEVICE_A DEVICE_B PORT SECONDS: NAME-server in a and NAME-client in b write to each other.
spawn_writes() {
  spawn "$1-server" a nobody ib_write_lat -d "$2" -x "$(gid_index a "$2" 10.0.0.1)" -p "$4" -D "$5"
  wait_until 20 listens "$1-server" "$4" || fail "ib_write_lat does not listen"
  spawn "$1-client" b nobody ib_write_lat -d "$3" -x "$(gid_index b "$3" 10.0.0.2)" -p "$4" -D "$5" 10.0.0.1
}

# add_ipv6: adds fd00::1 and fd00::2.
add_ipv6() {
  ip_in a address add fd00::1/64 dev eth0 nodad
  ip_in b address add fd00::2/64 dev eth0 nodad
  wait_until 10 has_ipv6 || fail "the IPv6 addresses are no GIDs"
}
has_ipv6() ( gid_index a va fd00::1 && gid_index b vb fd00::2 ) >/dev/null 2>&1

# pair USER PROGRAM ARGUMENTS...: server in a, client in b; both must succeed. The word GID among
# the arguments becomes the index of the program's own IPv4 address.
pair() {
  local user=$1 program=$2 began=${EPOCHREALTIME/./}
  shift 2
  tcp_server a "$user" "$program" -d va "${@/#GID/$INDEX_A}"
  spawn client b "$user" "$program" -d vb "${@/#GID/$INDEX_B}" 10.0.0.1
  both_end_well "$program" "$@"
  say "$program $*: passed in $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
}
