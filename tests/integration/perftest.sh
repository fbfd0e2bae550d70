#!/bin/bash
# perftest.sh direct|mediated root|nobody write|read|send|atomic: ib_<verb>_lat and ib_<verb>_bw.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |     va, vb: one tenant (direct), or
#   | 10.0.0.1  |           | 10.0.0.2  |     two tenants in one fabric (mediated)
#   +-----------+           +-----------+
#
# Few iterations: this tests that every option works, not how fast.
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2 verb=$3
setup
start_daemon
two_vdevices "$mode"

# With -a perftest recalibrates its clock for each of 23 sizes, about 10 s per run, so only one user
# runs it, in the release build, once per verb; otherwise a few sizes represent all.
every_size=true
[[ $user == nobody && -z ${VRDMA_TEST_PRELOAD:-} ]] || every_size=false

lat() { pair "$user" "ib_${verb}_lat" -F "$@"; }
bw() { pair "$user" "ib_${verb}_bw" -F "$@"; }

lat -n 100
lat -n 100 -x GID
bw -n 500
bw -n 500 -x GID
bw -n 100 -q 8
bw -n 200 -b
if [[ $verb != atomic ]]; then
  if $every_size; then
    bw -n 20 -a
  else
    bw -n 20 -s 1048576 -b
  fi
  for size in 1 4097 1048576; do lat -n 20 -s $size; done
fi
if [[ $verb != write ]]; then # which polls memory and has no events
  lat -n 100 -e
  bw -n 200 -e
fi
case $verb in
  write)
    lat -n 100 -c UC
    bw -n 200 -c UC
    bw -n 20 -c UC -s 65536 -b
    ;;
  send)
    bw -n 100 -q 8 -e -b
    lat -n 100 -c UC
    bw -n 200 -c UC
    bw -n 20 -c UC -s 65536 -b
    lat -n 100 -c UD
    lat -n 100 -c UD -e
    bw -n 200 -c UD
    bw -n 200 -c UD -b
    ;;
  atomic)
    for type in CMP_AND_SWAP FETCH_AND_ADD; do
      lat -n 100 -A $type
      bw -n 200 -A $type -q 8 -b
    done
    ;;
esac
