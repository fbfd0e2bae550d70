#!/bin/bash
# bad_input.sh: invalid input is refused with one sentence and a status, and changes nothing.
#
#     netns a
#   +-----------------+        va: the one vdevice that must outlive everything below
#   | va -- eth0 ==== | veth ==== netns b: eth0, no vdevice
#   +-----------------+
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red
a=$(ns a)
b=$(ns b)
vdevices() { ctl vdev list -o json | grep '"name"'; }
before=$(vdevices)
# Copies of the programs that another user can run.
mkdir "$T/bin"
cp "$BUILD/bin/vrdmactl" "$BUILD/sbin/vrdmad" "$T/bin/"

# refused STATUS PATTERN COMMAND...: COMMAND exits with STATUS (a pattern), prints one line that
# matches PATTERN on stderr and nothing on stdout, and changes no vdevice.
refused() {
  local wanted=$1 pattern=$2 status=0
  shift 2
  "$@" >"$T/out" 2>"$T/err" || status=$?
  [[ $status =~ ^($wanted)$ ]] || { cat "$T/err"; fail "$*: status $status"; }
  [[ ! -s $T/out ]] || { cat "$T/out"; fail "$*: prints on stdout"; }
  [[ $(wc -l <"$T/err") -eq 1 ]] || { cat "$T/err"; fail "$*: not one line"; }
  grep -qiE -- "$pattern" "$T/err" || { cat "$T/err"; fail "$*: does not name '$pattern'"; }
  [[ $(vdevices) == "$before" ]] || fail "$*: the vdevices have changed"
  say "refused: $(cat "$T/err")"
}
create() { ctl vdev create "$@"; }

say "vdev create"
refused 1 nowhere create x --netns nowhere --netdev eth0
refused 1 /run/netns/nowhere create x --netns /run/netns/nowhere --netdev eth0
refused 1 "$T/out" create x --netns "$T/out" --netdev eth0
refused 1 /proc/self/ns/net create x --netns /proc/self/ns/net --netdev lo
refused 1 999999999 create x --netns pid:999999999 --netdev eth0
refused '1|2' pid create x --netns pid:abc --netdev eth0
refused 1 "$b.*eth7" create x --netns "$b" --netdev eth7
refused 1 "$b.*e.th0" create x --netns "$b" --netdev $'e\nth0'
refused 1 mlx9_0 create x --netns "$b" --netdev eth0 --parent mlx9_0
refused '1|2' name create "" --netns "$b" --netdev eth0
refused '1|2' 'name|a/b' create a/b --netns "$b" --netdev eth0
refused '1|2' 'name|\.\.' create .. --netns "$b" --netdev eth0
refused '1|2' name create "$(printf 'x%.0s' {1..100})" --netns "$b" --netdev eth0
refused '1|2' name create $'x\ny' --netns "$b" --netdev eth0
refused '1|2' frogs create x --netns "$b" --netdev eth0 --quota frogs=3
refused '1|2' qp create x --netns "$b" --netdev eth0 --quota qp=many
refused '1|2' qp create x --netns "$b" --netdev eth0 --quota qp=-1
refused 1 va create va --netns "$a" --netdev eth0
refused 1 'eth0|va|10.0.0.1' create x --netns "$a" --netdev eth0 --tenant red

refused 1 "vdevice 'grö.e 1' is not a valid name" create "größe 1" --netns "$b" --netdev eth0
refused 1 "the vdevice 'x{64}\.\.\.' is not a valid name" create "$(printf 'x%.0s' {1..300})" --netns "$b" --netdev eth0
refused 2 'NAME is required' create --netns "$b" --netdev eth0
refused 2 '--netns is required' create x --netdev eth0
in_b() { create x --netns "$b" --netdev eth0 "$@"; }
refused 1 "the tenant 'a b' is not a valid name" in_b --tenant 'a b'
for word in qps QP; do refused 1 "no quota kind '$word'; do you mean qp\?" in_b --quota $word=4; done
refused 2 "'qp' is not a quota such as qp=64" in_b --quota qp
refused 2 'quota qp: .* beyond 64 bits' in_b --quota qp=100000000000000000000000
refused 1 'quota qp: 1000000 is above the maximum, 65536' in_b --quota qp=1000000
refused 2 "quota qp : ' 4' is not a number" in_b --quota 'qp = 4'
refused 2 'quota qp is named twice' in_b --quota qp=4,qp=5
refused 1 'quota qp is named twice' in_b --quota qp=4 --quota qp=5
refused 1 "no permission 'everything': there are raw-packet, qp1" in_b --allow everything
refused 2 "--gid-layout: 'foo' is not one of dense, mlx5" in_b --gid-layout foo
refused 1 "'10.0.0.0/99' is not an address prefix such as" in_b --addresses 10.0.0.0/99
refused 1 'the owner: there is no process 99999' in_b --owner 99999
refused 1 "label 'foo' is not KEY=VALUE" in_b --label foo
refused 1 "value of label 'city' is invalid: .* printable ASCII" in_b --label city=Zürich

say "other commands"
refused 1 nobody ctl vdev show nobody
refused 1 nobody ctl vdev delete nobody
ctl vdev create vgone --netns "$b" --netdev eth0 >/dev/null
refused 1 'nobody.*; .*neither' ctl vdev delete nobody vgone neither
[[ $(ctl vdev list) != *vgone* ]] || fail "after an error the other vdevices are not deleted"
refused 1 nobody ctl quota set nobody qp=1
refused 1 "no vdevice 'xxx" ctl quota set "$(printf 'x%.0s' {1..8000})" qp=1
refused '1|2' frogs ctl quota set va frogs=1
refused '1|2' "$T/nowhere" ctl cdi generate -o - --classes "$T/nowhere"
refused 2 '.' ctl vdev create
refused 2 '.' ctl frobnicate
refused 2 "there is no command 'list'; there are vdev, quota" ctl list
refused 2 "the command of 'quota' is missing; there are show, set" ctl quota
refused 2 'a command is missing; there are vdev, quota' ctl
refused 2 'NAME is required' ctl vdev delete
refused 1 "no vdevice 'id:999'" ctl vdev show id:999
refused 2 "'vb' is one argument too many for 'list'" ctl vdev list va vb
refused 2 "no option '-l' in 'list'; see --help" ctl vdev list -l
refused 2 "no option '--tennant=red' in 'list'; do you mean --tenant\?; see --help" ctl vdev list --tennant=red
refused 2 '--tenant wants a value: TENANT' ctl vdev list --tenant
refused 2 "--output: 'yaml' is not one of table, json" ctl vdev list -o yaml
refused 2 "no column 'nope'; there are NAME, STATE" ctl vdev list --columns nope
refused 1 '^\{"error":"there is no vdevice .nobody.","errno":2\}$' ctl vdev show nobody -j
refused 2 'QUOTA is required' ctl quota set va
refused 1 'worker_memory: 1024 would block everything; the minimum is' ctl quota set va worker_memory=1k
refused 1 'the default, 5, is above the ceiling, 3' ctl tenant set acme --default qp=5 --ceiling qp=3
for words in "stats nobody" "quota show nobody" "tenant show nobody" "parent show nobody" "stats tenant/nobody" "gid list nobody" \
  "qp list nobody" "conn list nobody"; do
  # shellcheck disable=SC2086
  refused 1 "(no vdevice|tenant|parent) 'nobody'" ctl $words
done
refused 2 "--reach: 'moon' is not one of host, network, wire" ctl fabric set f --reach moon
refused 2 'give --reach, --peers, or both' ctl fabric set f
refused 2 "give the program after --, as in" ctl exec va
refused 2 "give the program after --, as in" ctl exec va ibv_devices
refused 127 'cannot run no-such-program: No such file' ctl exec va -- no-such-program
refused 1 'there is no process 999999' ctl doctor 999999
refused 1 "'abc' is not a process id" ctl doctor abc
refused 1 "'foo' is not an IP address" ctl doctor --to foo
refused 1 "no netns 'nowhere'" ctl doctor --netns nowhere
refused 1 "no program 'no-such' in PATH" ctl doctor -- no-such
refused 2 "--interval: '0' is not 0.05 to 3600 seconds" ctl top --interval 0
refused 2 "--sort: 'colour' is not one of bytes, requests" ctl top --once --sort colour
refused 2 "no command 'tcsh' in 'completion'; there are bash, zsh, fish" ctl completion tcsh
refused 2 "'yesterday' is no time such as 10m, 2h" ctl events --since yesterday
refused 2 "--for: 'moon' is not one of active, gone" ctl wait va --for moon
refused 1 "the time is over: vdevice 'va' is ACTIVE" ctl wait va --for gone --timeout 0.1
printf '[small]\nfoo = 1\n' >"$T/classes.conf"
refused 1 "class 'small': there is no key 'foo'; there are allow" ctl cdi generate -o - --classes "$T/classes.conf"
refused 125 nobody ctl exec nobody -- true
refused 2 "'.xff' is not UTF-8" ctl vdev show $'\xff'
refused 2 'NAME: it is empty' ctl vdev show ''
mknod "$T/device" c 1 3
refused 1 'classes.conf: this is no seccomp profile' ctl seccomp "$T/classes.conf"
refused 1 'not a regular file' ctl cdi generate -o "$T/device"
[[ -c $T/device ]] || fail "cdi generate has replaced a device"
for words in "vdev list" "top --once" "watch" "--help" "--version"; do
  # shellcheck disable=SC2086
  timeout 10 "$BUILD/bin/vrdmactl" --run-dir "$R" $words >&- 2>"$T/err" && fail "$words succeeds without standard output"
  grep -q 'cannot write the output' "$T/err" || { cat "$T/err"; fail "$words does not say that it cannot write"; }
done

say "more addresses than a GID table holds"
for i in {1..300}; do printf 'address add fd77::%x/64 dev crowd0 nodad\n' "$i"; done >"$T/addresses"
loose a crowd0
ip_in a -batch "$T/addresses"
ctl vdev create crowd --netns "$a" --netdev crowd0 --tenant crowd >/dev/null
[[ $(ctl gid list crowd | sed 1d | wc -l) -eq 256 ]] || fail "not 256 GIDs: $(ctl gid list crowd | wc -l)"
grep -q 'vdevice .*/crowd: .* addresses of its netdev get no GID' "$T/vrdmad.log" || fail "nobody is told"
ctl vdev delete crowd >/dev/null

say "no root, no daemon"
as_nobody() { on a nobody env -u LD_PRELOAD "$@"; }
refused 1 'permission|root' as_nobody "$T/bin/vrdmactl" vdev list
refused 1 'permission|root|privilege|not permitted' as_nobody "$T/bin/vrdmad" \
  --run-dir "$T/run2" --state-dir "$T/state2" --log-level error
refused 1 "$T/none" env VRDMA_RUN_DIR="$T/none" timeout 20 "$BUILD/bin/vrdmactl" vdev list

say "a name that nobody uses, and that nearly is another"
ctl fabric set tenant/rad --reach network >"$T/out" 2>"$T/err" || fail "fabric set: $(<"$T/err")"
grep -qx "vrdmactl: note: fabric 'tenant/rad' has no vdevices; do you mean tenant/red?" "$T/err" || fail "fabric set: $(<"$T/err")"
ctl fabric set tenant/rad --reach host 2>/dev/null >&2
ctl tenant set rad --default qp=7 >"$T/out" 2>"$T/err" || fail "tenant set: $(<"$T/err")"
grep -qx "vrdmactl: note: tenant 'rad' has no vdevices; do you mean red?" "$T/err" || fail "tenant set: $(<"$T/err")"
ctl fabric set elsewhere --reach host 2>&1 | grep note && fail "a name like no other is noted"
ctl fabric set tenant/red --reach host 2>&1 | grep note && fail "a fabric in use is noted"
refused 2 'fabric set: give --reach, --peers, or both' ctl fabric set nosuch

say "the environment of programs"
library_says() { # PATTERN VARIABLE COMMAND...: one line; empty: none
  on a nobody env "${@:2}" >"$T/out" 2>"$T/err" || true
  if [[ -z $1 ]]; then
    grep '^vrdma: ' "$T/err" && fail "${*:2}: the library complains"
    return 0
  fi
  [[ $(grep -c '^vrdma: ' "$T/err") -eq 1 ]] || { cat "$T/err"; fail "${*:2}: not one line of the library"; }
  grep -qE "^vrdma: $1" "$T/err" || { cat "$T/err"; fail "${*:2}: does not say '$1'"; }
}
library_says "VRDMA_RUN_DIR is '$T/none': there is no such directory, so no vdevice is found" VRDMA_RUN_DIR="$T/none" ibv_devices
mkdir -m 755 "$T/nobodys"
library_says "VRDMA_RUN_DIR is '$T/nobodys': no vrdmad serves there .*, so no vdevice is found" VRDMA_RUN_DIR="$T/nobodys" ibv_devinfo
library_says "VRDMA_RUN_DIR is '$T/no.ne': there is no such" VRDMA_RUN_DIR="$T/no"$'\e'"ne" ibv_devices
library_says "" VRDMA_RUN_DIR="$T/none" VRDMA_QUIET=1 ibv_devices
library_says "" VRDMA_RUN_DIR="$R" ibv_devices
registers='import ctypes as c
verbs = c.CDLL("libibverbs.so.1")
for name in "ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr": getattr(verbs, name).restype = c.c_void_p
context = verbs.ibv_open_device(c.c_void_p(c.c_void_p.from_address(verbs.ibv_get_device_list(None)).value))
domain, memory = verbs.ibv_alloc_pd(c.c_void_p(context)), c.create_string_buffer(1 << 20)
for _ in range(3): assert verbs.ibv_reg_mr(c.c_void_p(domain), memory, c.c_size_t(1 << 20), 1)
print("registered")'
for value in reached in-place ''; do
  library_says "" VRDMA_MEMORY=$value /usr/bin/python3 -c "$registers"
  grep -qx registered "$T/out" || { cat "$T/err"; fail "VRDMA_MEMORY=$value: nothing is registered"; }
done
library_says "VRDMA_MEMORY is 'reach': it may be reached or in-place, and is taken for in-place" VRDMA_MEMORY=reach /usr/bin/python3 -c "$registers"
grep -qx registered "$T/out" || fail "VRDMA_MEMORY=reach: nothing is registered"

say "a daemon without descriptors"
few() { setpriv --bounding-set=-sys_resource --inh-caps=-all bash -c 'ulimit -n 191 && exec timeout 20 "$@"' - "$@"; }
refused 1 "vrdmad: a process of vrdmad may have 191 open files, and 192 are needed to serve a program" few "$BUILD/sbin/vrdmad" \
  --run-dir "$T/run6" --state-dir "$T/state6" --log-level error
[[ ! -e $T/run6 ]] || fail "a refused daemon has made its directory"

say "a second daemon"
second() { timeout 20 "$BUILD/sbin/vrdmad" --state-dir "$S" --log-level error "$@"; }
refused 1 "$R" second --run-dir "$R"
refused 1 "$R" env VRDMA_RUN_DIR="$R" timeout 20 "$BUILD/sbin/vrdmad" --state-dir "$S" --log-level error
refused 1 /proc/nowhere timeout 20 "$BUILD/sbin/vrdmad" --state-dir "$T/state2" --log-level error --run-dir /proc/nowhere
refused 1 "are both $T/run4: choose another one" timeout 20 "$BUILD/sbin/vrdmad" --state-dir "$T/run4/" --run-dir "$T/run4"
[[ ! -e $T/run4 ]] || fail "a refused daemon has made its directory"
refused 2 "run-dir: it is empty" second --run-dir ""
mkdir -m 1777 "$T/shared"
for user in root nobody; do
  refused 1 "$T/shared is writable by other users" timeout 20 "$BUILD/sbin/vrdmad" --run-dir "$T/run5" --state-dir "$T/shared" --user $user --log-level error
done
[[ ! -e $T/run5 ]] || fail "a refused daemon has made its directory"
[[ $(stat -c %a "$T/shared") == 1777 ]] || fail "a refused directory has mode $(stat -c %a "$T/shared")"
refused 1 "no directory $T/none" second --run-dir "$T/run3" --audit-log "$T/none/audit.jsonl"
refused 2 "worker-users: .*4294967000" second --run-dir "$T/run3" --worker-users 4294967000
refused 1 "worker-users 1: user 1000" timeout 20 "$BUILD/sbin/vrdmad" --run-dir "$T/run3" --state-dir "$T/state3" --worker-users 1 --user 1000
refused 1 "metrics: 'everywhere' is not unix:PATH, ADDRESS:PORT" second --run-dir "$T/run3" --metrics everywhere
refused 1 'give --metrics-cert and --metrics-key, and --metrics-token-file' second --run-dir "$T/run3" --metrics 0.0.0.0:9464
refused 1 "no directory $T/none" second --run-dir "$T/run3" --metrics "unix:$T/none/metrics.sock"
refused 1 "$T is a directory" second --run-dir "$T/run3" --audit-log "$T"
refused 1 'too long for the names of its sockets' second --run-dir "$T/run3/$(printf 'x%.0s' {1..90})"
refused 2 'user: it is empty' second --run-dir "$T/run3" --user ''
refused 2 "daemon-grace: 'nan'" second --run-dir "$T/run3" --daemon-grace nan
[[ ! -e $T/none && ! -e $T/run3 ]] || fail "a refused daemon has made directories"
refused '1|2' loud second --run-dir "$T/run3" --log-level loud
echo 'log_level = "error"' >"$T/conf"  # which is log-level
refused 2 "$T/conf, line 1: there is no option 'log_level'\$" second --run-dir "$T/run3" --config "$T/conf"

refused 2 "'stray' is one argument too many; see --help" second stray
refused 2 "there is no option '--grace'; see --help" second --grace 1h
refused 2 "there is no option '--metric'; do you mean --metrics\?; see --help" second --metric x
refused 2 '--log-level is given 2 times: once is enough' second --log-level info
refused 2 "daemon-grace: '1h' is not 0 to 3600 seconds" second --run-dir "$T/run3" --daemon-grace 1h

say "a sandbox"
sandbox() { timeout 20 "$BUILD/bin/vrdma-sandbox" "$@"; }
refused 2 'give the command after --, as in' sandbox
refused 2 "'ibv_devices' is one argument too many; the command stands behind --" sandbox ibv_devices
refused 2 "no option '--loses'; do you mean --loss\?; the command stands behind --" sandbox --loses 1 -- true
for count in 0 65 abc; do refused 2 "--vdevices: '$count' is not 1 to 64" sandbox --vdevices $count -- true; done
refused 2 '--seed is given 2 times: once is enough' sandbox --seed 1 --seed 2 -- true
refused 2 '--pair wants two commands' sandbox --pair -- true
refused 2 'options of a bad network, such as --loss, want --pair' sandbox --loss 1 -- true
for loss in 101 abc; do refused 2 "--loss: '$loss' is not 0 to 100 percent" sandbox --pair --loss $loss -- true -- true; done

say "a file that is none of options"
refused 2 '/etc/passwd, line 1: this is no option: write NAME = VALUE$' second --config /etc/passwd
refused 2 "$T/none" second --config "$T/none"
options() { # PATTERN LINE...: the file of these lines is refused
  printf '%s\n' "${@:2}" >"$T/conf"
  refused 2 "^vrdmad: $T/conf, line $1" second --run-dir "$T/run3" --config "$T/conf"
  [[ $(wc -c <"$T/err") -lt 500 ]] || fail "a long error: $(<"$T/err")"
}
options "3: .*log-format: 'loud'" '# a comment' '' 'log-format = "loud"'
options "3: the option 'log-level' was given before" 'log-level = "info"' 'workers = 1' 'log-level = "debug"'
options '2: .*workers' 'log-format = "text"' 'workers = -1'
options '2: .*workers' 'log-format = "text"' 'workers = many'
options '1: this is no option' '[log-level]'
options '1: this is no option' $'log\elevel = "info"'
options "1: there is no option 'config'" 'config = "x"'
options '1: this is no option' "$(printf 'x%.0s' {1..5000}) = 1"
options '1: .*log-format' "log-format = \"$(printf 'x%.0s' {1..5000})\""
echo 'log-level = "loud"' >"$T/conf"
refused 2 "^vrdmad: --log-level: 'quiet' is not one of" "$BUILD/sbin/vrdmad" --log-level quiet --config "$T/conf"

on a root ibv_devinfo -d va >/dev/null || fail "va does not work any more"
