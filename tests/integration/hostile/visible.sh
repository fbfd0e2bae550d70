#!/bin/bash
# visible.sh SNOOP: what a neighbour learns from the run directory. Neither from a container of
# another namespace, as its root, nor from a user namespace on the host can it read a name, a GUID
# or an address of another vdevice in a file or in a socket's reply.
#
#        netns a                    netns b
#   +---------------+          +--------------------+
#   | va (red) eth0 | ======== | evictim victimdev  |   one fabric; R/netns is mounted for a
#   +---------------+          +--------------------+
. "$(dirname "$0")/../lib.sh"
setup
cp "$1" "$T/snoop"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b evictim 10.66.77.88/24
ip_in b address add fd00:6677::8899/64 dev evictim nodad
vdev_create va a eth0 --tenant red --fabric shared
vdev_create victimdev b evictim --tenant victimtenant --fabric shared
mac=$(ip_in b -oneline link show evictim | grep -oP 'link/ether \K\S+')
guid=$(ctl vdev show victimdev -o json | sed -nE 's/^ *"node_guid": "(.*)",$/\1/p' | tr -d :)

# Must not be found, as text and as bytes; the first ones are what a reader of /sys would see.
cat >"$T/search.py" <<'PY'
import ipaddress, sys
seen = open(sys.argv[1], "rb").read()
mac, guid = bytes.fromhex(sys.argv[2].replace(":", "")), bytes.fromhex(sys.argv[3])
addresses = [ipaddress.ip_address("fd00:6677::8899"), ipaddress.ip_address("::ffff:10.66.77.88"),
             ipaddress.ip_address(b"\xfe\x80" + bytes(6) + bytes([mac[0] ^ 2]) + mac[1:3] +
                                  b"\xff\xfe" + mac[3:])]
secrets = [b"victimdev", b"victimtenant", b"evictim", b"10.66.77.88", sys.argv[2].encode(), mac,
           guid, guid[::-1], guid.hex().encode(),
           b":".join(guid.hex().encode()[i:i + 4] for i in range(0, 16, 4))]
for one in addresses:
    secrets += [one.packed, one.compressed.encode(), one.exploded.encode()]
found = [secret for secret in secrets if secret in seen]
print(len(seen), "bytes, of the victim:", found)
sys.exit(len(found) > 0)
PY
clean() { # WHAT FILE
  # The output proves nothing unless the snooper could have learnt something.
  [[ $(stat -c %s "$2") -gt 40 ]] || fail "$1: nothing was looked at"
  python3 "$T/search.py" "$2" "$mac" "$guid" || fail "$1 reveals the victim"
}

say "in the victim's own namespace all of it is found: the search works"
on b root "$T/snoop" "$R/netns" 0 >"$T/own"
if python3 "$T/search.py" "$T/own" "$mac" "$guid" >/dev/null; then fail "the search finds nothing at all"; fi

say "from a container of another namespace, as root with all capabilities"
mkdir "$T/mounted" "$T/alone"
# As a container has it: the directory of sockets alone.
# shellcheck disable=SC2046
$(enter a) unshare --mount bash -c '
  mkdir "$2/netns" && mount --bind "$1" "$2/netns" && mount -o remount,bind,ro "$2/netns" &&
    exec "$3" "$2/netns" 100000' container "$R/netns" "$T/alone" "$T/snoop" >"$T/container"
grep -qa "probe.*refused" "$T/container" || fail "no socket of another vdevice was tried"
grep -qa "answered" "$T/container" || fail "its own socket does not answer"
clean "a container's view" "$T/container"

say "from a container, as nobody"
on a nobody "$T/snoop" "$R/netns" 100000 >"$T/nobody"
grep -qa "probe.*refused" "$T/nobody" || fail "nobody did not guess the victim's cookie"
clean "nobody's view" "$T/nobody"
if grep -qaE "^\[$R/(sysfs|state)/." "$T/nobody"; then fail "nobody lists what is root's"; fi

say "from a user namespace on the host"
setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur "$T/snoop" "$R/netns" 100000 >"$T/user"
grep -qa "probe.*refused" "$T/user" || fail "the user namespace did not guess the victim's cookie"
clean "the view of a user namespace" "$T/user"
setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur cat /proc/net/unix >"$T/unix"
grep -q "$R/netns" "$T/unix" || fail "the host's table of sockets was not read"
clean "the host's table of sockets" "$T/unix"
