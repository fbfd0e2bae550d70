#!/bin/bash
# exchange.sh OLD FLOW: a vrdmad of another build, OLD, and ours follow each other several times, killed or stopped,
# while pairs of programs go on, with OLD's libraries and with ours. OLD keeps sessions in the same form as ours.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | ra -- eth0|           |eth0 -- rb |   of tenant red, mediated: the libraries of OLD
#   | ba -- eth0|===========|eth0 -- bb |   of tenant blue, mediated: ours
#   +-----------+           +-----------+
. "$(dirname "$0")/../../integration/lib.sh"
. "$(dirname "$0")/../../integration/flows.sh"
builds=("$VRDMAD" "$(realpath "$1")/sbin/vrdmad")
setup
mkdir "$T/old"
cp -L "$1"/lib/vrdma/*.so.* "$T/old/"
cp "$2" "$T/lib/flow"

VRDMAD=${builds[1]}
start_daemon
red_and_blue
libraries=("${ENVIRONMENT[@]}")
ENVIRONMENT+=(LD_LIBRARY_PATH="$T/old")
begin_flow red ra rb 18520
ENVIRONMENT=("${libraries[@]}")
begin_flow blue ba bb 18521
flows_go_on "with the older vrdmad"
for round in 0 1 2 3 4 5; do
  if ((round < 4)); then kill_daemon; else stop_daemon; fi
  VRDMAD=${builds[round % 2]}
  start_daemon
  flows_go_on "exchange $round, with $VRDMAD"
done
VRDMAD=${builds[0]}
end_flows "after all exchanges"
