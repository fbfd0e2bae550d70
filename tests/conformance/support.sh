#!/bin/bash
# support.sh: compares docs/verbs-support.md with the behaviour of a vdevice with its default quota.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|== veth ===|eth0 -- vb |   vb has all permissions
#   +-----------+           +-----------+
#
# To update the document: VRDMA_BUILD=build/release tests/conformance/support.sh --write
. "$(dirname "$0")/../integration/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red
vdev_create vb b eth0 --tenant red --allow raw-packet,qp1
cp "$BUILD/tests/conformance/verbs_support" "$T/"
asked() { # NAMESPACE USER DEVICE
  on "$1" "$2" "$T/verbs_support" "$3" || fail "the device cannot be asked"
}
asked a nobody va >"$T/found"
asked a root va >"$T/found.root"
cmp "$T/found" "$T/found.root" || fail "root may more than nobody, with a vdevice that allows nothing"
asked b root vb >"$T/allowed"
python3 "$(dirname "$0")/support.py" "$T/found" "$T/allowed" "$@" || fail "the document is stale"
