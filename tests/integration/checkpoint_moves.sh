#!/bin/bash
# checkpoint_moves.sh FLOW: a program with an open vdevice is dumped on one host and restored on another one, with its queue
# pairs, keys and PSNs; its peer on a third host notices a pause only. Then back; then after the end of its vdevice, and
# of vrdmad. The programs check each message, WRITE, READ and atomic that they exchange.
#
#    netns a, vrdmad 1     netns c, vrdmad 2     netns b, vrdmad 3
#   +----------------+    +----------------+    +----------------+
#   | va   10.0.0.1  |    | va   10.0.0.1  |    | vb   10.0.0.2  |
#   +----- eth0 -----+    +----- eth0 -----+    +----- eth0 -----+
#            |                     |                     |
#   =========+=====================+=====================+==========  a bridge, which leads to a or to c
#
# The hosts share a file system. The program's run directory is a link to that of the host where it is.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/criu.sh"
setup
need_worker_processes
need_criu
cp "$1" "$T/lib/flow"

netns_add a b c net
ip_in net link add br0 mtu 4200 type bridge
ip_in net link set br0 up
for space in a b c; do
  ip_in net link add name to-$space mtu 4200 type veth peer name eth0 netns "$(ns $space)"
  ip_in net link set to-$space master br0
  ip_in $space link set eth0 mtu 4200
  ip_in $space address add 10.0.0.$([[ $space == b ]] && echo 2 || echo 1)/24 dev eth0
  ip_in $space link set eth0 up
  $(enter $space) sysctl -qw net.ipv4.conf.eth0.arp_notify=1
done
ip_in net link set to-b up
criu_runs a

declare -A DAEMONS=()
host() { # NUMBER: what follows is about that one
  R=$T/run$1
  S=$T/state$1
  DAEMON=${DAEMONS[$1]:-}
}
begin_host() { # NUMBER [ARGUMENT...]
  host "$1"
  start_daemon "${@:2}"
  DAEMONS[$1]=$DAEMON
}
for number in 3 2 1; do begin_host $number; done
vdev_at() { # HOST VDEVICE NAMESPACE
  host "$1"
  vdev_create "$2" "$3" eth0 --fabric f
  ctl fabric set f --reach network >/dev/null
}
vdev_at 3 vb b
vdev_at 2 va c
vdev_at 1 va a
end_hosts() { # STATUS COMMAND: as finish
  local status=$1 number
  for number in 2 3; do
    host $number
    [[ $status -ne 0 ]] || stop_daemon || status=1
    [[ -z $DAEMON ]] || kill -9 "$DAEMON" 2>/dev/null || true
  done
  host 1
  finish "$status" "$2"
}
trap 'end_hosts $? "$BASH_COMMAND"' EXIT

# lead_to SPACE: the address 10.0.0.1 is there, and neighbours learn of it.
lead_to() {
  local other=c
  [[ $1 == a ]] || other=a
  ip_in net link set to-$other down
  ip_in net link set "to-$1" up
  ip_in "$1" link set eth0 down
  ip_in "$1" link set eth0 up
}
is_active() { [[ $(ctl vdev list | awk -v name="$1" '$1 == name { print $2 }') == ACTIVE ]]; }
declare -A HOST_OF=([a]=1 [c]=2)
# go_to SPACE: the program is there from now on.
go_to() {
  host "${HOST_OF[$1]}"
  ln -sfn "$R" "$T/run"
  lead_to "$1"
  wait_until 10 is_active va || fail "va is not active: $(ctl vdev list)"
}

begin() { # NAME HOW
  mkfifo "$T/$1.a" "$T/$1.b"
  go_to a
  ENVIRONMENT+=(FLOW_TIMEOUT=18 VRDMA_RUN_DIR="$T/run")  # 8 s
  begin_end "$1-a" a va 10.0.0.1 "$T/$1" "$2"
  host 3
  ENVIRONMENT+=(VRDMA_RUN_DIR="$R")
  begin_end "$1-b" b vb 10.0.0.2 "$T/$1" "$2" client
  host 1
}
begin_end() { # NAME NAMESPACE VDEVICE ADDRESS PIPES HOW [client]
  head -c 24 /dev/zero >"$T/$1.progress"
  spawn "$1" "$2" root setsid "$T/lib/flow" "$3" "$(gid_index "$2" "$3" "$4")" "$5" "$T/$1.progress" "$6" "${@:7}"
}
take() { # NAME NAMESPACE
  dumped_in "$2" "$1"
  killed "$1"
}
bring() { restored_in "$2" "$1"; }

for how in poll all shared; do
  begin $how $how
  goes_on $how-a $how-b
  say "$how: it goes to another host, and back"
  for to in c a; do
    from=a
    [[ $to == c ]] || from=c
    host "${HOST_OF[$from]}"
    take $how-a $from
    go_to $to
    bring $how-a $to
    goes_on $how-a $how-b
    [[ $(ctl vdev list | awk '$1 == "va" { print $2, $NF }') == 'ACTIVE 1' ]] || fail "vdev list: $(ctl vdev list)"
    host "${HOST_OF[$from]}"
    ctl checkpoint abandon "${PID[$how-a]}"
    goes_on $how-a $how-b
  done
  over $how
done

begin left all
goes_on left-a left-b
say "its vdevice is deleted and created meanwhile, and its vrdmad is killed"
take left-a a
ctl vdev delete va
vdev_at 1 va a
bring left-a a
goes_on left-a left-b
take left-a a
WORKERS_END=1
kill_daemon
begin_host 1
bring left-a a
goes_on left-a left-b

say "an image is restored once"
cp -r "$T/image" "$T/used"
take left-a a
mv "$T/image" "$T/fresh"
mv "$T/used" "$T/image"
restore_in a || true
has_gone "${PID[left-a]}" || killed left-a
grep -q 'vrdma: .*it was restored before, and an image is restored once' "$T/restore.log" || fail "$(grep -E 'Error|vrdma' "$T/restore.log")"
rm -r "$T/image"
mv "$T/fresh" "$T/image"

say "a vdevice without its address refuses it, and so does a namespace without a vdevice"
refused_in() { # NAMESPACE SENTENCE
  restore_in "$1" || true
  grep -q "vrdma: .*$2" "$T/restore.log" || fail "$(grep -E 'Error|vrdma' "$T/restore.log")"
  wait_until 10 has_gone "${PID[left-a]}" || fail "left-a lives"
}
host 3
refused_in b 'vdevice .*/vb: a queue pair of the program names GID ::ffff:10.0.0.1 by index'
refused_in net 'its network namespace has no vdevice'
host 1
bring left-a a
goes_on left-a left-b
over left
