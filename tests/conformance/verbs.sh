#!/bin/bash
# verbs.sh direct|mediated|network root|nobody GROUP [--seed N] [--only TEST]: runs a group of conformance
# tests.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | side a    |   veth    |    side b |   a pair of processes for each test, see main.cc
#   | va -- eth0|===========|eth0 -- vb |   va, vb: one tenant (direct), two tenants in one fabric
#   | 10.0.0.1  |           | 10.0.0.2  |   (mediated), or in two fabrics that reach the network
#   +-----------+           +-----------+
. "$(dirname "$0")/../integration/lib.sh"
mode=$1 user=$2 group=$3
shift 3
setup
start_daemon
fabrics=1
[[ $mode != network ]] || fabrics=2
two_ends "$mode" --allow raw-packet

# Copied, because other users may not be able to enter a build directory.
cp "$BUILD/tests/conformance/verbs_conformance" "$T/"
mkdir -m 1777 "$T/files"
[[ $user == nobody ]] && uid=65534 || uid=0
status=0
env -i "${ENVIRONMENT[@]}" TMPDIR="$T/files" "$T/verbs_conformance" --netns-a "$(ns a)" \
  --netns-b "$(ns b)" --user "$uid" --fabrics $fabrics "$@" "$group" 2>&1 | tee "$T/output" || status=$?
no_sanitizer "$group, $mode, $user" "$T/output"
[[ $status -eq 0 ]] || fail "$group, $mode, $user"
