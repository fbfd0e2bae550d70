# shellcheck shell=bash
# Functions for tests that source lib.sh before: packets of RoCE v2 between the namespaces a and b, their ports, and two
# daemons, as on two hosts.

# begin_capture: from now on the first packets that come to eth0 of b, or leave from it, go to $T/roce.pcap.
begin_capture() {
  rm -f "$T/capture.log"
  "$(dirname "${BASH_SOURCE[0]}")/roce_capture.py" "/run/netns/$(ns b)" eth0 "$T/roce.pcap" >"$T/capture.log" 2>&1 &
  PID[capture]=$!
  wait_until 10 grep -qs ready "$T/capture.log" || fail "the capture does not start"
}
end_capture() {
  kill -INT "${PID[capture]}"
  reap capture 20
  [[ $REAPED -eq 0 ]] || fail "packets on the wire are damaged: $(<"$T/capture.log")"
}
# has_roce_ports NAMESPACE: whether a socket there has UDP port 4791, or one of those of --roce-source-ports.
has_roce_ports() { [[ $($(enter "$1") ss -Huln) =~ :(4791|6144[0-7])" " ]]; }
free_of_roce_ports() { # NAMESPACE...
  local space
  for space in "$@"; do ! has_roce_ports "$space" || return 1; done
}

declare -A DAEMONS=() FAR=([a]=b [b]=a)
# side a|b: what follows is about that daemon, and programs that begin are its.
side() {
  [[ -z ${SIDE:-} ]] || DAEMONS[$SIDE]=$DAEMON
  SIDE=$1 DAEMON=${DAEMONS[$1]:-} R=$T/run-$1 S=$T/state-$1
  ENVIRONMENT[3]=VRDMA_RUN_DIR=$R
  PID[daemon]=${DAEMONS[${FAR[$1]}]:-$$-none}
}
# two_daemons: each has a vdevice, va in a and vb in b, that reaches the network.
two_daemons() {
  local end
  for end in a b; do
    side $end
    mkdir "$R" "$S"
    start_daemon
    vdev_create "v$end" $end eth0 --fabric outside
    ctl fabric set outside --reach network >/dev/null
  done
}
stop_daemons() {
  local end
  for end in a b; do
    side $end
    unset "PID[daemon]"
    stop_daemon || fail "daemon $end"
    DAEMONS[$end]=
  done
}
