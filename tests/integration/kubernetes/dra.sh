#!/bin/bash
# dra.sh: the plugin as a DRA driver, with an API server and a kubelet of release 1.36 that forget, refuse, and talk nonsense.
#
#     api_server.py -- https -- vrdma-device-plugin --mode dra -- admin.sock -- vrdmad
#                                  |                 |
#     kubelet.py -- plugins_registry, dra@*.sock     +-- cdi/vrdma.io-claim-UID.json
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need curl
need openssl
need_plugin
apart "$@"
setup
. "$here/dra.lib.sh"
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; unmount_all; finish "$status" "$command"' EXIT
own_etc
ip link set lo up
classes=$T/classes.conf
classes_are() {
  printf '%s\n' '[small]' 'tenant = shop' 'quota = qp=64,mr_bytes=1g,bandwidth=8gbit' 'max_quota = qp=256' "$@" >"$classes.new"
  mv "$classes.new" "$classes"
}
classes_are
start_hooks_daemon --classes "$classes"
ctl cdi generate --classes "$classes"
page() { curl -s -o "$T/page" -w '%{http_code}' "http://127.0.0.1:9810/$1" || true; }
answers() { [[ $(page "$1") == "$2" ]]; } # PAGE STATUS
metric() { page metrics >/dev/null; awk -v name="$1" '$1 == name { print $2 }' "$T/page"; } # NAME{LABELS}
uid_of() { printf '0b51bbf2-0000-4000-8000-%012d' "$1"; }
one=$(uid_of 1) two=$(uid_of 2) three=$(uid_of 3)

say "the driver publishes a slice, and a kubelet registers it"
api_start
kubelet_start --root "$T/kubelet"
api foreign node-1
driver_start driver --listen 127.0.0.1:9810
slices_become 10 1 default small
driver_says 10 '^driver vrdma.io '
driver_says 5 '^small HEALTHY True'
wait_until 5 answers readyz 200 || fail "it is not ready: $(<"$T/page")"
slice=$(api slice node-1-vrdma.io-0)
for part in '"vrdma.io/class": {"string": "small"}' '"vrdma.io/parent": {"string": "soft"}' '"allowMultipleAllocations": true' \
  '"vdevices": {"requestPolicy": {"default": "1", "validRange": {"max": "1", "min": "1"}}, "value": "64"}' \
  '"qp": {"requestPolicy": {"default": "64", "validRange": {"max": "256", "min": "1"}}, "value": "4096"}' \
  '"bandwidth": {"requestPolicy": {"default": "8G", "validRange": {"max": "8G", "min": "8"}}, "value": "512G"}'; do
  [[ $slice == *"$part"* ]] || fail "the slice has no $part: $slice"
done

# ---- claims -----------------------------------------------------------------------------------------

say "a claim is prepared: a record of vrdmad, a CDI file, an answer with the share"
share=$(api claim shop/pay "$one" small --capacity qp=128 --capacity mr_bytes=512Mi --capacity bandwidth=1G --capacity vdevices=1)
prepared=$(ask prepare shop/pay "$one")
[[ $prepared == "device request-0 node-1 small vrdma.io/claim=$one-$share $share" ]] || fail "the answer is $prepared"
[[ $(claims) == "$one shop/pay $share small bandwidth=125000000 mr_bytes=536870912 qp=128" ]] || fail "vrdmad has: $(claims)"
grep -q "\"$one-$share\"" "$(claim_file "$one")" || fail "the file is $(<"$(claim_file "$one")")"
[[ $(stat -c %a "$(claim_file "$one")") == 644 ]] || fail "the file has the mode $(stat -c %a "$(claim_file "$one")")"

say "it is prepared again for a new sandbox"
[[ $(ask prepare shop/pay "$one") == "$prepared" ]] || fail "another answer"
[[ $(claims | wc -l) -eq 1 ]] || fail "another record: $(claims)"

say "a claim without shares, and one of two devices"
api claim shop/old "$two" small --no-share-id >/dev/null
[[ $(ask prepare shop/old "$two") == "device request-0 node-1 small vrdma.io/claim=$two-0 " ]] || fail "the answer is $(ask prepare shop/old "$two")"
[[ $(claims | grep "^$two") == "$two shop/old 0 small" ]] || fail "vrdmad has: $(claims)"
api claim shop/both "$three" small default >/dev/null
[[ $(ask prepare shop/both "$three" | wc -l) -eq 2 ]] || fail "the answer is $(ask prepare shop/both "$three")"

say "a claim that changes replaces its record"
changed=$(api claim shop/pay "$one" small --capacity qp=32)
asked prepare shop/pay "$one"
[[ $(claims | grep "^$one") == "$one shop/pay $changed small qp=32" ]] || fail "vrdmad has: $(claims)"
grep -q "$changed" "$(claim_file "$one")" || fail "the file is $(<"$(claim_file "$one")")"
if grep -q "$share" "$(claim_file "$one")"; then fail "the file has the old share, too"; fi

say "claims that are refused in a sentence"
before=$(claims)
api claim shop/odd "$(uid_of 4)" large >/dev/null
refused "claim shop/odd: this node has no device 'large'" prepare shop/odd "$(uid_of 4)"
api claim shop/odd "$(uid_of 4)" small --capacity qp=nonsense >/dev/null
refused "it consumes 'qp': 'nonsense' is not a quantity" prepare shop/odd "$(uid_of 4)"
api claim shop/odd "$(uid_of 4)" small --config vrdma.io >/dev/null
refused 'it has a configuration for vrdma.io' prepare shop/odd "$(uid_of 4)"
api claim shop/odd "$(uid_of 4)" small --node node-2 >/dev/null
refused 'no such claim with a device of node node-1' prepare shop/odd "$(uid_of 4)"
refused 'no such claim with a device of node node-1' prepare shop/none "$(uid_of 4)"
refused 'no such claim with a device of node node-1' prepare shop/pay "$(uid_of 5)"  # of the same name
refused 'the kubelet names a claim' prepare 'shop/..%2fpay' "$one"
refused 'the kubelet names a claim' prepare shop/pay ../../../etc/x
[[ $(claims) == "$before" && $(find "$CLAIM_FILES" -type f | wc -l) -eq 3 ]] || fail "something was made: $(claims) $(ls "$CLAIM_FILES")"

say "unprepare undoes it; unknown claims are a success"
asked unprepare shop/both "$three"
no_claim "$three" || fail "it is left: $(claims)"
asked unprepare shop/both "$three"
asked unprepare shop/never "$(uid_of 9)"
asked unprepare shop/never ../../etc/passwd
asked unprepare shop/old "$two"

# ---- slices that go, files that go -----------------------------------------------------------------------

say "slices that a kubelet deletes are there again, with a higher generation"
for _ in 1 2 3; do
  before=$(generation)
  began=${EPOCHREALTIME/./}
  api delete-slices
  slices_become 5 $((before + 1)) default small
  say "after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
done
[[ $(api slices | grep -c '^other-') -eq 2 ]] || fail "the slices of others are gone: $(api slices)"

say "nothing is written while nothing changes"
before=$(api requests | grep -E '^(post|put|delete) slices')
sleep 2
[[ $(api requests | grep -E '^(post|put|delete) slices') == "$before" ]] || fail "it writes: $before, then $(api requests)"

say "files that are removed are written again"
rm "$(claim_file "$one")"
wait_until 5 test -e "$(claim_file "$one")" || fail "the file is not written again"
mv "$CLAIM_FILES" "$CLAIM_FILES.before"
mkdir -p "$CLAIM_FILES"  # the driver may have been faster
wait_until 5 test -e "$(claim_file "$one")" || fail "the file is not written into the new directory"
[[ $(metric vrdma_plugin_claim_files_rewritten_total) -ge 2 ]] || fail "the metrics say $(<"$T/page")"

# ---- an API server that is away ---------------------------------------------------------------------------

say "an API server that is away, has an error, or talks nonsense"
api claim shop/late "$two" small >/dev/null
api away
refused 'claim shop/late: the API server cannot be reached' prepare shop/late "$two"
wait_until 15 answers readyz 503 || fail "it is ready without an API server"
api back
wait_until 15 answers readyz 200 || fail "it is not ready: $(<"$T/page")"
api be error
refused 'claim shop/late: the API server answers 503 .*etcdserver' prepare shop/late "$two"
api be nonsense
refused 'claim shop/late: the API server answers with no ResourceClaim' prepare shop/late "$two"
api be huge
refused "claim shop/late: the API server's answer is larger than 4 MiB" prepare shop/late "$two"
no_claim "$two" || fail "something was prepared: $(claims)"
api be well
asked prepare shop/late "$two"
[[ -e $(claim_file "$one") ]] || fail "the file of a claim is gone"

say "the token and the authority are replaced"
api token token-2
refused 'the API server answers 401' prepare shop/late "$two"
echo token-2 >"$T/account/token"
asked prepare shop/late "$two"
api away
certificate_of_api
api back
refused "the API server $API is not that of" prepare shop/late "$two"
cp "$T/api/ca.crt" "$T/account/ca.crt"
asked prepare shop/late "$two"
wait_until 15 answers readyz 200 || fail "it is not ready: $(<"$T/page")"

# ---- health -------------------------------------------------------------------------------------------------

say "a class with a mistake is unhealthy and tainted, and no claim of it is prepared"
before=$(generation)
classes_are 'reach = nonsense'
driver_says 5 '^small UNHEALTHY True .*nonsense'
slices_become 5 $((before + 1)) default 'small!class'
refused 'claim shop/late: .*nonsense' prepare shop/late "$two"

classes_are
driver_says 5 '^small HEALTHY True'
slices_become 5 $((before + 2)) default small

say "vrdmad that is away"
stop_daemon
driver_says 10 '^small UNHEALTHY True'
refused 'claim shop/late: ' prepare shop/late "$two"
refused 'unprepare: claim shop/late: ' unprepare shop/late "$two"
start_daemon --classes "$classes"
driver_says 10 '^small HEALTHY True'
[[ $(claims | wc -l) -eq 2 ]] || fail "vrdmad has: $(claims)"

# ---- restarts ------------------------------------------------------------------------------------------------

say "a kubelet that restarts, also with other versions"
count=$(ask driver-registrations)
for versions in 'v1.DRAPlugin v1alpha1.DRAResourceHealth' 'v1beta1.DRAPlugin v1beta1.DRAResourceHealth' 'v1.DRAPlugin v1.DRAResourceHealth'; do
  # shellcheck disable=SC2086  # two words
  asked versions $versions
  asked restart-drivers
  api delete-slices
  driver_says 5 '^small HEALTHY True'
  asked prepare shop/pay "$one"
done
[[ $(ask driver-registrations) -eq $((count + 3)) ]] || fail "it registered $(($(ask driver-registrations) - count)) times"

say "a kubelet that refuses the driver"
asked refuse-driver 'version is not supported'
asked restart-drivers
wait_until 5 answers readyz 503 || fail "it is ready"
page readyz >/dev/null
grep -q 'the kubelet refuses it: version is not supported' "$T/page" || fail "/readyz says $(<"$T/page")"
asked refuse-driver ''
wait_until 5 answers readyz 200 || fail "it is not ready: $(<"$T/page")"

say "its socket is removed"
count=$(ask driver-registrations)
rm "$T"/kubelet/plugins_registry/*
registered_since() { [[ $(ask driver-registrations) -gt $1 ]]; }
wait_until 5 registered_since "$count" || fail "it does not register again"

say "kill -9: what changed meanwhile is put right"
kill_programs driver
rm "$(claim_file "$one")"
echo '{}' >"$(claim_file "$three")"  # of a claim that vrdmad does not have
api delete-claim shop/late
api delete-slices
before=$(api requests | sed -n 's/^get claims //p')
driver_start driver --listen 127.0.0.1:9810
wait_until 10 no_claim "$two" || fail "a claim that is gone is left: $(claims)"
wait_until 5 test -e "$(claim_file "$one")" || fail "the file is not written again"
has_claim "$one" || fail "a claim that is there was undone"
[[ ! -e $(claim_file "$three") ]] || fail "a file of no claim is left"
driver_says 5 '^small HEALTHY True'
[[ -n $(slices) ]] || wait_until 5 slices || fail "there are no slices"
[[ $(find "$T"/kubelet/plugins_registry -type s | wc -l) -eq 1 ]] || fail "stale sockets: $(ls "$T"/kubelet/plugins_registry)"
asked prepare shop/pay "$one"

say "a claim that is deallocated while the API server cannot be asked is undone later"
kill_programs driver
api deallocate shop/pay
api away
driver_start driver --listen 127.0.0.1:9810
says_away() { grep -q "claims: .*the API server cannot be reached" "$T/driver.log"; }
wait_until 10 says_away || fail "it does not say that: $(tail -n 5 "$T/driver.log")"
has_claim "$one" || fail "a claim was undone without an answer"
api back
wait_until 15 no_claim "$one" || fail "the claim is left: $(claims)"

say "two instances do not take turns"
driver_start younger --listen 127.0.0.1:9811
yields() { grep -q 'registered vrdma.io' "$T/younger.log"; }
wait_until 10 yields || fail "the younger is not registered: $(<"$T/younger.log")"
api delete-slices
wait_until 5 slices || fail "there are no slices"
before=$(generation)
sleep 2
[[ $(generation) -eq $before ]] || fail "the generation grows: $(slices)"
kill -TERM "${PID[driver]}"
reap driver 10
[[ $REAPED -eq 0 ]] || fail "SIGTERM ends it with $REAPED"
api claim shop/pay "$one" small >/dev/null
driver_says 5 '^small HEALTHY True'
asked prepare shop/pay "$one"
asked unprepare shop/pay "$one"

say "SIGTERM leaves no socket, and the slices, which the kubelet removes"
kill -TERM "${PID[younger]}"
reap younger 10
[[ $REAPED -eq 0 ]] || fail "SIGTERM ends it with $REAPED"
[[ -z $(find "$T/kubelet" -type s) ]] || fail "sockets are left: $(find "$T/kubelet" -type s)"
[[ -z $(find "$CLAIM_FILES" -type f) && -z $(claims) ]] || fail "something is left: $(ls "$CLAIM_FILES") $(claims)"
[[ -n $(slices) ]] || fail "the slices are gone"

say "wrong usage"
wrong() { # SENTENCE ARGUMENT...
  local status=0
  "$PLUGIN" --mode dra "${@:2}" >"$T/wrong.log" 2>&1 || status=$?
  [[ $status -eq 2 ]] || fail "${*:2} ends with $status: $(<"$T/wrong.log")"
  grep -qF -- "$1" "$T/wrong.log" || fail "${*:2} says $(<"$T/wrong.log")"
}
wrong '--mode dra needs --node' --api-server "$API"
wrong '--mode dra needs --api-server' --node node-1
wrong "'http://x' is not a URL such as" --node node-1 --api-server http://x
wrong "'a/b' is not the name of a node" --node a/b --api-server "$API"
