# shellcheck shell=bash
# What a page of documentation takes for granted: `<!-- run . tests/docs/stage.sh; ... -->`.

# daemon [options of vrdmad]: started, and answering.
daemon() {
  vrdmad "$@" >/tmp/vrdmad.log 2>&1 </dev/null &
  disown
  for _ in {1..200}; do
    vrdmactl version >/dev/null 2>&1 && return
    sleep 0.05
  done
  cat /tmp/vrdmad.log
  return 1
}

# namespaces A B: joined by a veth pair; eth0 has 10.0.0.1 in A and 10.0.0.2 in B.
namespaces() {
  ip netns add "$1"
  ip netns add "$2"
  ip -n "$1" link add eth0 type veth peer name eth0 netns "$2"
  ip -n "$1" address add 10.0.0.1/24 dev eth0
  ip -n "$2" address add 10.0.0.2/24 dev eth0
  for name in "$1" "$2"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set eth0 up
  done
}
