#!/bin/bash
# doctor.sh: the output of `vrdmactl doctor`, and the library's line, for each obstacle that a test
# can create.
#
#     netns a                        netns b            netns c: no vdevice
#   +-----------------+           +-----------+
#   | va -- eth0 =====|== veth ===|eth0 -- vb |
#   +-----------------+           +-----------+
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a b c
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red
vdev_create vb b eth0 --tenant red
system=$(ldconfig -p | awk '/libibverbs.so.1 / && !n++ { print $NF }')

examine() { # STATUS ARGUMENTS...: the words are in $T/doctor.log
  local status=0
  ctl doctor "${@:2}" >"$T/doctor.log" 2>&1 || status=$?
  [[ $status -eq $1 ]] || { cat "$T/doctor.log"; fail "doctor ${*:2}: status $status, not $1"; }
  no_sanitizer doctor "$T/doctor.log"
}
finds() { # STATE CHECK TEXT
  grep -E "^$1 +$2 +" "$T/doctor.log" | grep -qF -- "$3" || {
    cat "$T/doctor.log"
    fail "doctor does not find '$1 $2 ... $3'"
  }
}
# asleep NAME COMMAND...: starts a program that has loaded a library and sleeps: ${PID[NAME]}.
asleep() {
  local name=$1
  "${@:2}" /usr/bin/python3 -c 'import ctypes, time
ctypes.CDLL("libibverbs.so.1")
print("ready", flush=True)
time.sleep(300)' >"$T/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
  wait_until 20 grep -q ready "$T/$name.log" || fail "$name does not start"
}
wake() { kill -9 "${PID[$1]}"; wait "${PID[$1]}" 2>/dev/null || true; unset "PID[$1]"; }
watches_memory() { grep -qs vrdma-memory /proc/"$1"/task/*/comm; }
say "nothing is wrong"
examine 0 --netns "$(ns a)"
finds ok daemon "vrdmad"
finds ok vdevice "va on eth0, port ACTIVE"
finds ok session "it opens va"
# shellcheck disable=SC2046
asleep well $(enter a) $(user_prefix nobody) env -i "${ENVIRONMENT[@]}"
examine 0 "${PID[well]}"
finds ok library "mapped: $T/lib/libibverbs.so.1 (public nodes to IBVERBS_1."
finds ok socket "vrdmad can be reached"
finds ok privileges "exec gained none"
finds ok session "the library of this program"
ctl -o json doctor "${PID[well]}" | /usr/bin/python3 -c '
import json, sys
found = {one["check"]: one["state"] for one in json.load(sys.stdin)}
assert found["library"] == found["vdevice"] == found["session"] == "ok", found' || fail "the JSON"
finds unknown memory "has no memory in place: whether it has registered none, or what it has registered is reached, is not known"
wake well
# shellcheck disable=SC2046
asleep asked $(enter a) $(user_prefix nobody) env -i "${ENVIRONMENT[@]}" VRDMA_MEMORY=reached
examine 0 "${PID[asked]}"
finds ok memory "has VRDMA_MEMORY=reached"
wake asked
# shellcheck disable=SC2046
asleep misspelt $(enter a) $(user_prefix nobody) env -i "${ENVIRONMENT[@]}" VRDMA_MEMORY=reach
examine 1 "${PID[misspelt]}"
finds problem memory "has VRDMA_MEMORY=reach, which means nothing; set it to reached or in-place, or not at all"
wake misspelt
spawn registers a nobody ibv_rc_pingpong -g 1
wait_until 20 watches_memory "${PID[registers]}" || fail "ibv_rc_pingpong registers no memory"
examine 0 "${PID[registers]}"
finds ok memory "has registered memory in place"
finds ok library "which vrdma's library loads too"
wake registers

say "what a filter forbids is said where it is known"
examine 0 --netns "$(ns a)"
grep -q unseen "$T/doctor.log" && fail "memory was unseen before: $(<"$T/doctor.log")"
if python3 -c 'import seccomp' 2>/dev/null; then
  filter='import errno, os, seccomp, sys
rules = seccomp.SyscallFilter(seccomp.ALLOW)
rules.add_rule(seccomp.ERRNO(errno.EPERM), sys.argv[1])
rules.load()
os.execvp(sys.argv[2], sys.argv[2:])'
  spawn filtered a nobody /usr/bin/python3 -c "$filter" userfaultfd ibv_rc_pingpong -g 1
  seen_unseen() { ctl doctor --netns "$(ns a)" >"$T/doctor.log" 2>&1 && grep -q unseen "$T/doctor.log"; }
  wait_until 20 seen_unseen || fail "the program registers nothing unseen: $(<"$T/doctor.log")"
  finds unknown memory "regions of va are or were reached because their programs could not call userfaultfd(2) (unseen); which programs, and whether they still run, is not known"
  examine 0 "${PID[filtered]}"
  finds unknown seccomp "has a filter, and whether that permits userfaultfd(2) is not known"
  wake filtered
  spawn other a nobody /usr/bin/python3 -c "$filter" vmsplice ibv_rc_pingpong -g 1
  wait_until 20 watches_memory "${PID[other]}" || fail "ibv_rc_pingpong registers no memory"
  examine 0 "${PID[other]}"
  finds ok seccomp "has a filter, which permits userfaultfd(2)"
  wake other
  $(enter a) /usr/bin/python3 -c "$filter" userfaultfd env LD_LIBRARY_PATH="$T/lib" VRDMA_RUN_DIR="$R" "$BUILD/bin/vrdmactl" doctor >"$T/doctor.log" 2>&1 || fail "doctor finds a problem"
  finds ok seccomp "a program started here has a filter, and may not call userfaultfd(2), so what it registers is reached"
fi
$(enter a) env LD_LIBRARY_PATH="$T/lib" VRDMA_RUN_DIR="$R" "$BUILD/bin/vrdmactl" doctor >"$T/doctor.log" 2>&1 || fail "doctor finds a problem"
finds ok seccomp "a program started here may call userfaultfd(2)"

say "the wrong library"
if [[ -n $system && -z ${VRDMA_TEST_PRELOAD:-} ]]; then
  # shellcheck disable=SC2046
  asleep foreign $(enter a) env -i PATH="$PATH" VRDMA_RUN_DIR="$R"
  examine 1 "${PID[foreign]}"
  finds problem library "which is not vrdma's and does not support vdevices"
  wake foreign
fi
$(enter a) env LD_LIBRARY_PATH= VRDMA_RUN_DIR="$R" "$BUILD/bin/vrdmactl" doctor -- ibv_devinfo >"$T/doctor.log" 2>&1 &&
  fail "doctor finds nothing wrong with the system's library"
finds problem library "which is not vrdma's"
$(enter a) env LD_LIBRARY_PATH="$T/lib" VRDMA_RUN_DIR="$R" "$BUILD/bin/vrdmactl" doctor -- ibv_devinfo >"$T/doctor.log" 2>&1 ||
  fail "doctor finds something wrong with ours"
finds ok library "would be loaded: $T/lib/libibverbs.so.1"
cp "$(command -v ibv_devinfo)" "$T/gains"
chmod 4755 "$T/gains"
$(enter a) env LD_LIBRARY_PATH="$T/lib" VRDMA_RUN_DIR="$R" "$BUILD/bin/vrdmactl" doctor -- "$T/gains" >"$T/doctor.log" 2>&1 &&
  fail "doctor finds nothing wrong with a set-user-id program"
finds problem privileges "gains ids"

say "no vdevice"
examine 1 --netns "$(ns c)"
finds problem vdevice "there is none in the network namespace of netns $(ns c); run it where one exists: va (netns $(ns a)), vb"

say "the run directory is not in its mount namespace, or another one is"
# shellcheck disable=SC2046
asleep hidden $(enter a) unshare --mount --propagation private \
  sh -c "mount -t tmpfs none $R/netns && exec env -i ${ENVIRONMENT[*]} \"\$@\"" -
examine 1 "${PID[hidden]}"
finds problem rundir "has no sockets of its vdevices"
wake hidden
# shellcheck disable=SC2046
asleep lost $(enter a) env -i "${ENVIRONMENT[@]}" VRDMA_RUN_DIR=/nowhere
examine 1 "${PID[lost]}"
finds problem rundir "/nowhere/netns does not exist"
wake lost

say "connecting is forbidden; address space"
chmod 600 "$(socket_of va)"
# shellcheck disable=SC2046
asleep forbidden $(enter a) $(user_prefix nobody) env -i "${ENVIRONMENT[@]}"
examine 1 "${PID[forbidden]}"
finds problem socket "Permission denied"
wake forbidden
chmod 666 "$(socket_of va)"
if [[ -z ${VRDMA_TEST_PRELOAD:-} ]]; then  # a sanitizer takes more
  # shellcheck disable=SC2046
  asleep narrow $(enter a) env -i "${ENVIRONMENT[@]}" prlimit --as=2000000000
  examine 1 "${PID[narrow]}"
  finds problem ulimit "KiB, and an open vdevice takes"
  wake narrow
fi

say "a quota that has refused something"
ctl quota set va context=1
on a nobody ibv_asyncwatch -d va >"$T/watch.log" 2>&1 &
PID[watch]=$!
wait_until 20 grep -q "async event" "$T/watch.log" || fail "ibv_asyncwatch does not open va"
on a nobody ibv_devinfo -d va >"$T/second.log" 2>&1 && fail "the quota is not kept"
examine 1 --netns "$(ns a)"
finds problem quota "va has refused context "
finds problem quota "1 of 1 are in use; 'vrdmactl quota set va context=2' gives it more"
wake watch
ctl quota set va context=1k
examine 0 --netns "$(ns a)"
finds ok quota "va has refused context "

say "nothing of the process that is examined is run"
mkdir "$T/evil"
chmod 777 "$T/evil"
gcc -shared -fPIC -o "$T/evil/libibverbs.so.1" -x c - <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
const char* looks_like_a_drop_in = "VRDMA_RUN_DIR";
__attribute__((constructor)) static void run(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s/ran-%d", getenv("EVIL") ? getenv("EVIL") : "/tmp", (int)geteuid());
  close(open(name, O_CREAT | O_WRONLY, 0666));
}
END
asleep evil $(enter a) $(user_prefix nobody) env -i "${ENVIRONMENT[@]}" EVIL="$T/evil" LD_LIBRARY_PATH="$T/evil"
[[ -e $T/evil/ran-65534 ]] || fail "the library does not run where it should"
rm -f "$T/evil/ran-65534"
EVIL=$T/evil ctl doctor "${PID[evil]}" >"$T/evil.log" 2>&1 || true
wake evil
[[ -z $(find "$T/evil" -name 'ran-*') ]] || fail "the doctor runs the library of the process: $(ls "$T/evil")"

gcc -shared -fPIC -o "$T/evil/audit.so" -x c - <<'END'
#include <fcntl.h>
#include <unistd.h>
unsigned la_version(unsigned version) {
  close(open(geteuid() == 0 ? "ran-as-root" : "ran", O_CREAT | O_WRONLY, 0666));
  return version;
}
END
gcc -o "$T/evil/program" -Wl,--audit="$T/evil/audit.so" -x c - <<<'int main(void) { return 0; }'
(cd "$T/evil" && "$BUILD/bin/vrdmactl" doctor -- ./program >"$T/evil.log" 2>&1) || true
[[ -e $T/evil/ran ]] || fail "the loader does not execute the library for auditing: $(<"$T/evil.log")"
[[ ! -e $T/evil/ran-as-root ]] || fail "root executes code of the program that it examines"
chmod 700 "$T/evil/program"
ctl doctor -- "$T/evil/program" >"$T/evil.log" 2>&1 || true
grep -q "is not readable by the user nobody" "$T/evil.log" || fail "$(<"$T/evil.log")"

say "the library's line: once, and not with VRDMA_QUIET"
twice='import ctypes
lib = ctypes.CDLL("libibverbs.so.1")
for i in range(2): lib.ibv_get_device_list(None)'
lines() { on a nobody env "$@" /usr/bin/python3 -c "$twice" 2>&1 | grep -c '^vrdma: a vdevice cannot be used'; }
[[ $(lines A=b) -eq 0 ]] || fail "the library says something where nothing is wrong"
chmod 600 "$(socket_of va)"
[[ $(lines A=b) -eq 1 ]] || fail "the library does not say once that it may not connect"
[[ $(lines VRDMA_QUIET=1) -eq 0 ]] || fail "VRDMA_QUIET=1 does not silence the library"
chmod 666 "$(socket_of va)"

say "a peer on this host, or on another one"
examine 0 --netns "$(ns a)" --to 10.0.0.2
finds ok peer "10.0.0.2 is vb on this host, in the fabric of va"
netns_add d
join a eth1 10.0.9.1/24 d eth0 10.0.9.2/24
vdev_create vd d eth0 --tenant blue
examine 1 --netns "$(ns a)" --to 10.0.9.2
finds problem peer "10.0.9.2 is not in the fabric of va (tenant/red), which ends at this host; vd in fabric tenant/blue has it"
examine 1 --netns "$(ns a)" --to 10.0.9.3
finds problem peer "which ends at this host; 'vrdmactl fabric set tenant/red --reach network', on both hosts"
ctl fabric set tenant/red --reach network
examine 1 --netns "$(ns a)" --to 10.0.9.2
finds problem peer "10.0.9.2 is vd on this host, in fabric tenant/blue, which ends at this host; 'vrdmactl fabric set tenant/blue"
ctl fabric set tenant/blue --reach network
examine 1 --netns "$(ns a)" --to 10.0.9.2
finds problem peer "leave from 10.0.9.1, which is no address of a vdevice whose fabric reaches the network"
vdev_create va1 a eth1 --tenant red
examine 0 --netns "$(ns a)" --to 10.0.9.2
finds unknown peer "10.0.9.2 answers, and UDP port 4791 is closed there: no program uses RDMA at that address now"
spawn rping d root rping -s -C 1
has_port() { [[ -n $($(enter d) ss -Huln 'sport = 4791') ]]; }
wait_until 10 has_port || fail "a program with rdma_cm does not open the port"
examine 0 --netns "$(ns a)" --to 10.0.9.2
finds ok peer "leave from 10.0.9.1 of va1, and 10.0.9.2 answers on UDP port 4791"
finds ok port "no other program keeps UDP port 4791 from va, va1"
$(enter d) nft 'table ip filter { chain in { type filter hook input priority 0; udp dport 4791 drop; }; }'
examine 1 --netns "$(ns a)" --to 10.0.9.2
finds problem peer "leave from 10.0.9.1 of va1, and 10.0.9.2 does not answer on UDP port 4791; permit UDP port 4791 both ways"
$(enter d) nft delete table ip filter
$(enter a) ip route add 10.96.0.0/24 via 10.0.9.2
$(enter a) nft 'table ip nat { chain out { type nat hook output priority -100; ip daddr 10.96.0.1 dnat to 10.0.9.2; }; }'
examine 1 --netns "$(ns a)" --to 10.96.0.1
finds problem peer "and arrive with other addresses: they are translated (NAT) on the way to 10.96.0.1"
$(enter a) nft delete table ip nat
kill -9 "${PID[rping]}"
reap rping 5
$(enter a) sysctl -qw net.ipv4.neigh.eth1.retrans_time_ms=100
examine 1 --netns "$(ns a)" --to 10.0.9.77
finds problem peer "no host answers for 10.0.9.77"
ip_in a link set lo down  # the kernel's message to the socket does not arrive
examine 1 --netns "$(ns a)" --to 10.0.9.78
finds problem peer "no host answers for 10.0.9.78"
ip_in a link set lo up
examine 1 --netns "$(ns a)" --to fd77::1
finds problem peer "there is no way to fd77::1: Network is unreachable"
$(enter a) nft 'table ip filter { chain out { type filter hook output priority 0; udp dport 4791 drop; }; }'
examine 1 --netns "$(ns a)" --to 10.0.9.2
finds problem peer "a filter of the namespace drops packets to UDP port 4791 of 10.0.9.2"
say "a program that has the port"
# shellcheck disable=SC2046
$(enter d) /usr/bin/python3 -c '
import socket, time
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        taken.bind(("0.0.0.0", 4791))
        time.sleep(300)
    except OSError:  # vrdmad closes what the last session had
        time.sleep(0.05)' &
PID[taker]=$!
takes_port() { [[ -n $($(enter d) ss -Huln 'src 0.0.0.0 and sport = 4791') ]]; }
wait_until 10 takes_port || fail "the port cannot be taken"
examine 1 --netns "$(ns d)"
finds problem port "another program has UDP port 4791 at every address of the network namespace, so vd exchanges no packets"
kill_programs taker
for name in va1 vd; do ctl vdev delete $name; done

if [[ -n $(workers) ]]; then
  say "a worker that does not answer"
  spawn opened a nobody ibv_asyncwatch -d va
  wait_until 10 is_served opened || fail "va is not open"
  worker=$(worker_of opened | head -n 1)
  kill -STOP "$worker"
  examine 1 --netns "$(ns a)"
  finds problem session "vrdmad has not answered the open of va within 15 seconds; see the log of vrdmad"
  kill -CONT "$worker"
  kill -9 "${PID[opened]}"
  reap opened 5
fi

say "no daemon"
broker=$(helper broker)  # listens at the sockets, and ends a little later
kill_daemon
[[ -z $broker ]] || wait_until 10 ended "$broker" || fail "the broker outlives vrdmad"
examine 1 --netns "$(ns a)"
finds problem daemon "$R/admin.sock"
finds problem socket "no process answers"
examine 1 --netns "$(ns b)" --to 10.0.0.1
finds unknown peer "vrdmad has not told which vdevices there are; run doctor again when vrdmad serves"
[[ $(lines A=b) -eq 1 ]] || fail "the library does not say that vrdmad is gone"
start_daemon

say "mistakes"
examine 1 999999999
grep -q "there is no process 999999999" "$T/doctor.log" || fail "no such process"
examine 1 x
grep -q "'x' is not a process id" "$T/doctor.log" || fail "no number"
examine 1 --netns "$(ns a)" --to nowhere
grep -q "'nowhere' is not an IP address" "$T/doctor.log" || fail "no address"
