#!/bin/bash
# rsocket_signals.sh direct|mediated root|nobody PROGRAM: sockets over RDMA while signals arrive.
#
# The namespaces and vdevices of rdmacm.sh.
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2
setup
start_daemon
two_vdevices "$mode"
cp "$3" "$T/signals"  # a build directory may be closed to other users

say "who waits"
on a "$user" "$T/signals" wait 10.0.0.1 7777 || fail "it ends with status $?"

say "who leaves while bytes are on their way, slowly"
ctl quota set vb bandwidth=100k
length=262144 ways=(close shutdown half)
listening_server a "$user" "$T/signals" take 10.0.0.1 7777 "${ways[@]/*/$length}"
for way in "${ways[@]}"; do
  on b "$user" "$T/signals" leave 10.0.0.1 7777 $length "$way" || fail "$way: it ends with status $?"
done
reap server 20
[[ $REAPED -eq 0 ]] || fail "not all bytes have come"
no_sanitizer "signals" "$T/server.log"
