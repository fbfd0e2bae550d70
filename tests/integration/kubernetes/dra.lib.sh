# shellcheck shell=bash
# Functions of the tests with claims, in addition to lib.sh: api_server.py imitates the API server and the scheduler, and
# kubelet.py the kubelet's part. The root directory of the kubelet is $T/kubelet, that of CDI files of claims $T/cdi.
API=https://127.0.0.1:6443
CLAIM_FILES=$T/cdi

# certificate_of_api: a new authority and a certificate of it, which the API server presents from now on.
certificate_of_api() {
  local name
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=authority" \
    -keyout "$T/api/ca.key" -out "$T/api/ca.crt.new" >"$T/openssl.log" 2>&1 || fail "no authority: $(<"$T/openssl.log")"
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=kubernetes" \
    -keyout "$T/api/server.key.new" -out "$T/api/server.csr" >"$T/openssl.log" 2>&1 || fail "no request: $(<"$T/openssl.log")"
  openssl x509 -req -in "$T/api/server.csr" -CA "$T/api/ca.crt.new" -CAkey "$T/api/ca.key" -CAcreateserial -days 2 \
    -extfile <(echo 'subjectAltName = IP:127.0.0.1') -out "$T/api/server.crt.new" >"$T/openssl.log" 2>&1 ||
    fail "no certificate: $(<"$T/openssl.log")"
  for name in ca.crt server.key server.crt; do mv "$T/api/$name.new" "$T/api/$name"; done
}
# api_start: with the service account of the plugin in $T/account.
api_start() {
  mkdir -p "$T/api" "$T/account"
  certificate_of_api
  cp "$T/api/ca.crt" "$T/account/"
  echo token-1 | tee "$T/api/token" >"$T/account/token"
  "$KUBERNETES/api_server.py" 6443 "$T/api" "$T/api.control" >>"$T/api.log" 2>&1 &
  PID[api]=$!
  wait_until 20 test -S "$T/api.control" || fail "the stand-in for the API server does not start: $(<"$T/api.log")"
}
# api WORDS...: a command for the API server; api_server.py lists them. The test fails if it does.
api() { "$KUBERNETES/ask.py" "$T/api.control" "$@" 2>"$T/api.errors" || fail "$*: $(<"$T/api.errors")"; }

# driver_start NAME [ARGUMENT]...: a DRA driver whose log is $T/NAME.log.
driver_start() {
  local name=$1
  mkdir -p "$T/kubelet/plugins_registry" "$CLAIM_FILES"
  "$PLUGIN" --mode dra --run-dir "$R" --node node-1 --kubelet-root "$T/kubelet" --claims-dir "$CLAIM_FILES" \
    --api-server "$API" --service-account "$T/account" "${@:2}" >>"$T/$name.log" 2>&1 &
  PID[$name]=$!
}
slices() { api slices | grep '^node-1-vrdma'; }
# slices_become SECONDS GENERATION DEVICE...
slices_become() {
  wait_until "$1" slices_are "${@:2}" || fail "the slices are not $*: $(api slices)"
}
slices_are() { [[ $(slices) == "node-1-vrdma.io-0 generation=$1 of=1 ${*:2}" ]]; }
# generation: of the only slice.
generation() { slices | sed 's/.*generation=\([0-9]*\).*/\1/'; }
# driver_says SECONDS PATTERN: a line of the kubelet's about drivers and the health of their devices.
driver_says() { wait_until "$1" has_line "$2" || fail "the kubelet does not say $2: $(ask drivers)"; }
has_line() { ask drivers | grep -qE "$1"; }

# refused SENTENCE COMMAND...: the kubelet's command fails with it.
refused() {
  if ask "${@:2}" >"$T/refused.log" 2>&1; then fail "${*:2} succeeds: $1"; fi
  grep -qE "$1" "$T/refused.log" || fail "${*:2} is refused by: $(<"$T/refused.log")"
}
claim_file() { echo "$CLAIM_FILES/vrdma.io-claim-$1.json"; }
# claims: of vrdmad, a line for each: uid NAMESPACE/NAME, and for each share: id class kind=limit...
claims() {
  ctl claim list -o json | python3 -c '
import json, sys
for claim in json.load(sys.stdin):
    shares = (" ".join([share["id"], share["class"], *(f"{k}={v}" for k, v in sorted(share["quota"].items()))]) for share in claim["shares"])
    print(claim["uid"], claim["namespace"] + "/" + claim["name"], *shares)'
}
has_claim() { claims | grep -q "^$1 "; }
no_claim() { ! has_claim "$1" && [[ ! -e $(claim_file "$1") ]]; }
