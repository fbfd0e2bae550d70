#!/bin/bash
# support.sh: docs/verbs-support.md says what a vdevice with its default quota does.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|== veth ===|eth0 -- vb |   vb does nothing: it gives eth0 its carrier
#   +-----------+           +-----------+
#
# To mend the document: VRDMA_BUILD=build/release tests/conformance/support.sh --write
. "$(dirname "$0")/../integration/lib.sh"
setup
start_daemon
two_vdevices direct
cp "$BUILD/tests/conformance/verbs_support" "$T/"
on a nobody "$T/verbs_support" va >"$T/found" || fail "the device cannot be asked"
python3 "$(dirname "$0")/support.py" "$T/found" "$@" || fail "the document is stale"
