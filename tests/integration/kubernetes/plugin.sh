#!/bin/bash
# plugin.sh [old]: the device plugin and a kubelet of release 1.36, or of 1.20, that restarts, refuses and forgets.
#
#     kubelet.py --- kubelet.sock, vrdma-CLASS@*.sock --- vrdma-device-plugin --- admin.sock --- vrdmad
#     (no container engine)                               (two of them)          |
#                                                         /etc/cdi/vrdma.json ---+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need curl
need_plugin
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; unmount_all; finish "$status" "$command"' EXIT
old=() sort="1.36"
[[ ${1:-} != old ]] || { old=(--old) sort="1.20"; }
own_etc
ip link set lo up
classes=$T/classes.conf
# classes_are DEVICES [LINE]...: of the class small, and further lines.
classes_are() {
  printf '%s\n' '[small]' 'tenant = shop' "devices = $1" '[other]' 'devices = 4' "${@:2}" >"$classes.new"
  mv "$classes.new" "$classes"
}
classes_are 8
start_hooks_daemon --classes "$classes"
ctl cdi generate --classes "$classes"
page() { curl -s -o "$T/page" -w '%{http_code}' "http://127.0.0.1:9810/$1" || true; }
answers() { [[ $(page "$1") == "$2" ]]; } # PAGE STATUS
metric() { page metrics >/dev/null; awk -v name="$1" '$1 == name { print $2 }' "$T/page"; } # NAME{LABELS}
sockets() { find "$T/device-plugins" -name 'vrdma-*.sock' -printf '%f\n' | sort; }
lists() { grep -c "list vrdma.io/small $1" "$T/kubelet.log" || true; } # WORDS: how many of these the kubelet got
# ready: the kubelet has both resources, and the plugin says so.
ready() {
  becomes "$1" small 8 8
  becomes "$1" other 4 4
}

say "a plugin that starts before its kubelet registers each class once ($sort)"
mkdir "$T/device-plugins"
plugin_start plugin --listen 127.0.0.1:9810
wait_until 20 answers readyz 503 || fail "it does not answer, or is ready without a kubelet: $(page readyz)"
kubelet_start "${old[@]}"
ready 10
wait_until 5 answers readyz 200 || fail "it is not ready: $(<"$T/page")"
for class in small other default; do
  [[ $(registrations $class) -eq 1 ]] || fail "not one registration of $class: $(ask registrations)"
done

say "a container gets the name of a CDI device and no more"
pod shop/one --limit vrdma.io/small=1
said=$(grep -vE '^(uid|id) ' "$T/pod-shop-one" | sort | tr '\n' ';')
wanted='annotation cdi.k8s.io/vrdma_small=vrdma.io/device=small;'
[[ $sort == 1.20 ]] || wanted+='cdi vrdma.io/device=small;'
[[ $said == "$wanted" ]] || fail "it gets $said"
[[ $(of_pod shop/one id) =~ ^small-[0-7]$ ]] || fail "its device is $(of_pod shop/one id)"
refused_pod "UnexpectedAdmissionError: .* a container gets one vdevice of class 'small': ask for vrdma.io/small: 1" shop/many --limit vrdma.io/small=2
say "two devices: $(<"$T/refused.log")"
refused_pod 'Requested: 9, Available: 7' shop/many --limit vrdma.io/small=9

say "one id for two pods is answered: the kubelet's mistake"
asked twice
pod shop/two --limit vrdma.io/small=1
[[ $(of_pod shop/two id) == "$(of_pod shop/one id)" ]] || fail "they have different ids: nothing is tested"
asked delete shop/two

# ---- health -----------------------------------------------------------------------------------------

say "devices are Unhealthy while their class has a mistake, and only they"
classes_are 8 '[small]' 'quota = nonsense'
becomes 5 small 8 0
becomes 5 other 4 4
refused_pod 'no healthy devices present' shop/three --limit vrdma.io/small=1
classes_are 8
ready 5

say "a mistake in the file concerns all"
printf 'nonsense\n' >"$classes"
becomes 5 small 8 0
becomes 5 other 4 0
classes_are 8
ready 5

say "the CDI specification, and the hook that it names"
rm /etc/cdi/vrdma.json
becomes 5 small 8 0
ctl cdi generate --classes "$classes"
ready 5
mount --bind /dev/null "$BUILD/lib/vrdma/vrdma-oci-hook"
becomes 5 small 8 0
umount "$BUILD/lib/vrdma/vrdma-oci-hook"
ready 5

say "a short absence of vrdmad is not reported, a long one is"
before=$(lists healthy=0)
began=${EPOCHREALTIME/./}
stop_daemon
start_daemon --classes "$classes"
took=$(((${EPOCHREALTIME/./} - began) / 1000))
classes_are 9
becomes 5 small 9 9
[[ $took -ge 2500 || $(lists healthy=0) -eq $before ]] || fail "an absence of $took ms is reported"
classes_are 8
ready 5
stop_daemon
becomes 10 small 8 0
start_daemon --classes "$classes"
ready 5

say "classes come and go"
classes_are 8 '[extra]' 'devices = 2'
becomes 5 extra 2 0  # until the CDI specification has it
ctl cdi generate --classes "$classes"
becomes 5 extra 2 2
classes_are 8
becomes 5 extra 2 0
ready 5

# ---- a kubelet that forgets ----------------------------------------------------------------------------

# registers_again CLASS BEFORE NUMBER: since there were BEFORE registrations of it, there were NUMBER.
registers_again() { [[ $(($(registrations "$1") - $2)) -eq $3 ]] || fail "$1 registered $(($(registrations "$1") - $2)) times"; }
say "a kubelet that restarts finds the plugin within 2 s"
count=$(registrations small)
asked stop
[[ -n $(sockets) ]] || fail "the sockets are removed before the kubelet starts"
asked start
ready 2
registers_again small "$count" 1

say "a kubelet that is killed"
kill_programs kubelet
rm "$T/kubelet.control"
kubelet_start "${old[@]}"
ready 2
registers_again small 0 1
refused_pod 'Requested: 8, Available: 7' shop/many --limit vrdma.io/small=8  # of its checkpoint

say "a stream that is cut"
count=$(registrations small)
asked cut vrdma.io/small
wait_until 5 grep -q 'the stream of vrdma.io/small ends' "$T/kubelet.log" || fail "no stream ends"
registered_since() { [[ $(registrations "$1") -gt $2 ]]; }
wait_until 2 registered_since small "$count" || fail "it does not register again"
ready 2
# 1.36 disconnects also the plugin that has registered before it has seen the end of the stream (devices.py), which then
# registers once more.
again=$(($(registrations small) - count))
[[ $again -eq 1 || ($again -eq 2 && ${#old[@]} -eq 0) ]] || fail "small registered $again times"

say "a kubelet that knows another version"
asked refuse yes
asked restart
wait_until 5 answers readyz 503 || fail "it is ready"
refused() { ask registrations | grep -q '^vrdma.io/small .* refused'; }
wait_until 5 refused || fail "it does not register: $(ask registrations)"
says_why() { page readyz >/dev/null; grep -q 'requested API version' "$T/page" && grep -q 'requested API version' "$T/plugin.log"; }
wait_until 5 says_why || fail "/readyz and the log do not say why: $(<"$T/page") $(tail -n 3 "$T/plugin.log")"
asked refuse no
ready 5
wait_until 5 answers readyz 200 || fail "it is not ready: $(<"$T/page")"

say "a kubelet that answers late"
asked late 2
count=$(registrations small)
asked restart
ready 8
registers_again small "$count" 1
asked late 0

# ---- two instances -----------------------------------------------------------------------------------

say "two instances do not take turns"
count=$(registrations small)
plugin_start younger --listen 127.0.0.1:9811
wait_until 10 registered_since small "$count" || fail "the younger does not register"
ready 5
# In the 3 s of this they would.
stop_daemon
becomes 10 small 8 0
start_daemon --classes "$classes"
ready 5
during=$(($(registrations small) - count))
[[ $during -le 2 ]] || fail "$during registrations while two instances run"
say "registrations of a class while two instances ran: $during"
pod shop/four --limit vrdma.io/small=1

say "the younger goes on when the older ends, also if its stream ends late"
if [[ $sort == 1.36 ]]; then
  count=$(registrations small)
  asked end-predecessor vrdma.io/small
  wait_until 5 registered_since small "$count" || fail "the younger does not register again: $(ask status)"
  ready 5
fi
kill -TERM "${PID[plugin]}"
reap plugin 10
[[ $REAPED -eq 0 ]] || fail "SIGTERM ends it with $REAPED"
ready 5
pod shop/five --limit vrdma.io/small=1
[[ $(sockets | wc -l) -eq 3 ]] || fail "the older leaves sockets: $(sockets)"  # small, other, default

say "the older serves again when the younger is killed"
plugin_start plugin --listen 127.0.0.1:9810
ready 10
count=$(registrations small)
plugin_start third --listen 127.0.0.1:9812
wait_until 10 registered_since small "$count" || fail "the third does not register"
ready 5
kill_programs third younger
ready 5
pod shop/six --limit vrdma.io/small=1

# ---- ends ----------------------------------------------------------------------------------------------

say "what a killed plugin leaves is removed by the next"
kill_programs plugin
[[ -n $(sockets) ]] || fail "a killed plugin leaves no socket: nothing is tested"
plugin_start plugin --listen 127.0.0.1:9810
ready 10
[[ $(sockets | wc -l) -eq 3 ]] || fail "stale sockets: $(sockets)"

say "metrics"
refused_pod 'INVALID_ARGUMENT' shop/many --limit vrdma.io/small=2
pod shop/seven --limit vrdma.io/small=1
asked cut vrdma.io/small
registered() { [[ $(metric 'vrdma_plugin_registrations_total{class="small",result="accepted"}') -ge 2 ]]; }
wait_until 5 registered || fail "the metrics do not count registrations: $(<"$T/page")"
ready 5
classes_are 8 '[small]' 'quota = nonsense'
becomes 5 small 8 0
page metrics >/dev/null
for line in 'vrdma_plugin_devices{class="small",health="healthy"} 0' 'vrdma_plugin_devices{class="small",health="unhealthy"} 8' \
  'vrdma_plugin_devices{class="other",health="healthy"} 4' 'vrdma_plugin_allocations_total{class="small"} 1' \
  'vrdma_plugin_refusals_total{class="small",reason="many"} 1' 'vrdma_plugin_unhealthy{class="small",reason="class"} 1' \
  'vrdma_plugin_kubelet_restarts_total 0'; do
  grep -qxF "$line" "$T/page" || fail "the metrics do not say $line: $(<"$T/page")"
done
[[ $(metric 'vrdma_plugin_stream_age_seconds{class="other"}') =~ [1-9] ]] || fail "the stream has no age: $(<"$T/page")"
classes_are 8
ready 5

say "SIGTERM leaves no socket"
kill -TERM "${PID[plugin]}"
reap plugin 10
[[ $REAPED -eq 0 ]] || fail "SIGTERM ends it with $REAPED"
[[ -z $(sockets) ]] || fail "sockets are left: $(sockets)"
becomes 5 small 8 0 disconnected
if grep WRONG "$T/kubelet.log"; then fail "a list that a kubelet does not understand"; fi
