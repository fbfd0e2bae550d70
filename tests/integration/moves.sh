# shellcheck shell=bash
# Three hosts on one bridge, for tests that source lib.sh and criu.sh before: a program with a vdevice moves between the
# first two, its peer is on the third.
#
#    netns a, vrdmad 1     netns c, vrdmad 2     netns b, vrdmad 3
#   +----------------+    +----------------+    +----------------+
#   | va   10.0.0.1  |    | va   10.0.0.1  |    | vb   10.0.0.2  |
#   +----- eth0 -----+    +----- eth0 -----+    +----- eth0 -----+
#            |                     |                     |
#   =========+=====================+=====================+==========  a bridge, which leads to a or to c
#
# The hosts share a file system. The program's run directory, $T/run, is a link to that of the host where it is.

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
is_up() { [[ $(ctl vdev list | awk -v name="$1" '$1 == name { print $2 }') =~ ^(ACTIVE|PARKED)$ ]]; }
declare -A HOST_OF=([a]=1 [c]=2)
# go_to SPACE: the program is there from now on.
go_to() {
  host "${HOST_OF[$1]}"
  ln -sfn "$R" "$T/run"
  lead_to "$1"
  wait_until 10 is_up va || fail "va is not active: $(ctl vdev list)"
}
take() { # NAME NAMESPACE
  dumped_in "$2" "$1"
  killed "$1"
}
bring() { restored_in "$2" "$1"; }
refused_in() { # NAMESPACE NAME SENTENCE: the program is not restored there
  restore_in "$1" || true
  grep -q "vrdma: .*$3" "$T/restore.log" || fail "$(grep -E 'Error|vrdma' "$T/restore.log")"
  wait_until 10 has_gone "${PID[$2]}" || fail "$2 lives"
}
# used_once NAME NAMESPACE: $T/image, of which the program was restored, is refused; it is dumped again before.
used_once() {
  cp -r "$T/image" "$T/used"
  take "$1" "$2"
  mv "$T/image" "$T/fresh"
  mv "$T/used" "$T/image"
  refused_in "$2" "$1" 'it was restored before, and an image is restored once'
  rm -r "$T/image"
  mv "$T/fresh" "$T/image"
}
