# shellcheck shell=bash
# Functions of the tests with a device plugin of Kubernetes, in addition to those of the tests with container engines. The
# plugin and vrdmad are real; kubelet.py stands in for the kubelet. VRDMA_PLUGIN names a plugin of another build.
. "$(dirname "${BASH_SOURCE[0]}")/../../interop/containers/lib.sh"
KUBERNETES=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
PLUGIN=${VRDMA_PLUGIN:-$BUILD/bin/vrdma-device-plugin}
readonly KUBERNETES PLUGIN

need_plugin() {
  [[ -x $PLUGIN ]] || fail "$PLUGIN is not built"
  /usr/bin/python3 -c 'import grpc' 2>/dev/null || skip "python3-grpcio is not installed"
}

# kubelet_start [OPTION]...: its directory is $T/device-plugins, its log $T/kubelet.log.
kubelet_start() {
  "$KUBERNETES/kubelet.py" "$@" "$T/device-plugins" "$T/kubelet.control" >>"$T/kubelet.log" 2>&1 &
  PID[kubelet]=$!
  wait_until 20 test -S "$T/kubelet.control" || fail "the stand-in for the kubelet does not start: $(<"$T/kubelet.log")"
}
# ask WORDS...: a command for the kubelet; kubelet.py lists them.
ask() { "$KUBERNETES/ask.py" "$T/kubelet.control" "$@"; }
# asked WORDS...: the same, and the test fails if the command does.
asked() { ask "$@" >"$T/asked" 2>&1 || fail "$*: $(<"$T/asked")"; }

# plugin_start NAME [ARGUMENT]...: a plugin whose log is $T/NAME.log.
plugin_start() {
  local name=$1
  "$PLUGIN" --run-dir "$R" --kubelet-dir "$T/device-plugins" "${@:2}" >>"$T/$name.log" 2>&1 &
  PID[$name]=$!
}
# has RESOURCE CAPACITY ALLOCATABLE [disconnected]: as the node's status says.
has() { ask status | grep -qx "vrdma.io/$1 capacity=$2 allocatable=$3 ${4:-connected}"; }
# becomes SECONDS RESOURCE CAPACITY ALLOCATABLE [disconnected]
becomes() { wait_until "$1" has "${@:2}" || fail "it is not $*: $(ask status)"; }
# registrations [RESOURCE]: how many there were, of each version.
registrations() { ask registrations | grep -c "^vrdma.io/${1:-}" || true; }

# pod NAME [OPTION]... [-- COMMAND]: what the kubelet says of it is in $T/pod-NAME.
pod() { ask pod "$@" >"$T/pod-${1//\//-}" 2>"$T/pod.errors" || fail "pod $1: $(<"$T/pod.errors")"; }
# of_pod NAME WORD: what the kubelet says behind that word: uid, id, sandbox, address.
of_pod() { sed -n "s/^$2 //p" "$T/pod-${1//\//-}"; }
# refused_pod SENTENCE NAME [OPTION]...: the kubelet does not admit it, or it does not start.
refused_pod() {
  if ask pod "${@:2}" >"$T/refused.log" 2>&1; then fail "pod $2 starts: $1"; fi
  grep -qE "$1" "$T/refused.log" || fail "pod $2 is refused by: $(<"$T/refused.log")"
}
