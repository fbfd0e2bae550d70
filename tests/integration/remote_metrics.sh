#!/bin/bash
# remote_metrics.sh: metrics for other hosts: TLS, token, certificates of clients, peers that hold or flood; its process.
#
#   curl at 127.0.0.1, a flood from 127.0.0.3 to .59 ---TLS--- 127.0.0.2:PORT, vrdmad-metrics --- vrdmad
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/certificates.sh"
setup
for program in openssl curl; do command -v $program >/dev/null || skip "$program is not installed"; done
make_ca ca
make_ca stranger
make_certificate server ca IP:127.0.0.1,IP:127.0.0.2
make_certificate client ca DNS:client
make_certificate other stranger DNS:other
make_token token
port=$((20000 + $$ % 20000))
tls=(--metrics-cert "$T/server.pem" --metrics-key "$T/server.key")

# scrape [OPTIONS OF CURL]: the status of an answer over TLS, in $T/scrape.log what was said.
scrape() { # each time from another address, since a host may connect so often
  curl -sS --max-time 10 --interface "127.0.0.$((100 + RANDOM % 150))" --cacert "$T/ca.pem" -o "$T/scrape.log" -w '%{http_code}' "$@" "https://127.0.0.2:$port/metrics" 2>"$T/curl.log" || true
}
bearer() { echo "Authorization: Bearer $(<"$T/$1")"; }
count() { awk -v name="vrdma_daemon_metrics_refused_total{reason=\"$1\"}" '$1 == name { print $2 }' "$T/scrape.log"; }
refused() { # SENTENCE OPTIONS: vrdmad says this one sentence, and makes nothing
  local sentence=$1 status=0
  shift
  timeout 20 "$VRDMAD" --user "$DAEMON_USER" --run-dir "$T/none" --state-dir "$T/none-state" --log-level error "$@" 2>"$T/refused.log" || status=$?
  [[ $status -eq 1 ]] || fail "vrdmad $* ends with status $status"
  [[ $(wc -l <"$T/refused.log") -eq 1 ]] && grep -qF -- "$sentence" "$T/refused.log" || fail "vrdmad $* says: $(<"$T/refused.log")"
}

say "no address but loopback without TLS and a proof of who asks"
address=127.0.0.2:$port
refused "other hosts may reach '$address'" --metrics "$address"
refused "other hosts may reach '0.0.0.0:9464'" --metrics 0.0.0.0:9464
refused "every host could read them" --metrics "$address" "${tls[@]}"
refused "both --metrics-cert and --metrics-key" --metrics "$address" --metrics-cert "$T/server.pem" --metrics-token-file "$T/token"
refused "need --metrics ADDRESS:PORT" "${tls[@]}" --metrics-token-file "$T/token"
refused "is not the key of the certificate" --metrics "$address" --metrics-cert "$T/server.pem" --metrics-key "$T/client.key" --metrics-token-file "$T/token"
install -m 644 "$T/token" "$T/open"
refused "$T/open is a secret, but every user may read it" --metrics "$address" "${tls[@]}" --metrics-token-file "$T/open"
(umask 077; cp "$T/token" "$T/roots")
if [[ $DAEMON_USER != root ]]; then
  refused "read $T/roots: Permission denied" --metrics "$address" "${tls[@]}" --metrics-token-file "$T/roots"
fi

say "the token opens, and nothing else does"
start_daemon --metrics "$address" "${tls[@]}" --metrics-token-file "$T/token"
[[ $(scrape -H "$(bearer token)") == 200 ]] || fail "the token gets nothing: $(cat "$T/curl.log")"
grep -qx 'vrdma_vdevices 0' "$T/scrape.log" || fail "these are no metrics"
make_token wrong
[[ $(scrape -H "$(bearer wrong)") == 401 ]] || fail "a wrong token gets another answer than 401"
[[ $(scrape) == 401 ]] || fail "no token gets another answer than 401"
grep -q vrdma "$T/scrape.log" && fail "a client without the token gets metrics"
plain=$(curl -sS --max-time 10 -w ' %{http_code}' "http://$address/metrics" || true)
[[ $plain == "this port needs https:// 400" ]] || fail "plain HTTP gets: $plain"
[[ $(scrape --tls-max 1.1 -H "$(bearer token)") == 000 ]] || fail "it speaks TLS 1.1"
[[ $(scrape --tls-max 1.2 -H "$(bearer token)") == 200 ]] || fail "it does not speak TLS 1.2"
scrape -H "$(bearer token)" >/dev/null
[[ $(count unauthorized) -eq 2 && $(count unproven) -eq 2 ]] || fail "they are not counted: $(grep refused "$T/scrape.log")"

say "its process has no privilege, and no more of the daemon than its text"
metrics=$(helper metrics)
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$metrics/status"; }
[[ $(status CapEff) == 0000000000000000 && $(status CapPrm) == 0000000000000000 && $(status NoNewPrivs) == 1 ]] || fail "it has privileges"
[[ $(status Uid) == "$(awk '$1 == "Uid:" { print $2 }' "/proc/$DAEMON/status")" ]] || fail "it has another user than the daemon"
[[ -n ${VRDMA_TEST_PRELOAD:-} || $(status Seccomp) == 2 ]] || fail "it may make any system call"
[[ $(find "/proc/$metrics/fd" -lname 'socket:*' | wc -l) -eq 2 ]] || fail "it has other sockets: $(ls -l "/proc/$metrics/fd")"
[[ -z $(find "/proc/$metrics/fd" -lname "$S*" -o -lname "$R*") ]] || fail "it has files of the daemon"

say "peers that say nothing, or too much, do not keep others out"
python3 - "$port" >"$T/flood.log" 2>&1 <<'END' &
import socket, sys, time
silent = []
end = time.monotonic() + 30
while time.monotonic() < end:
    for host in [*range(3, 60), *[60] * 8]:  # the last has more than one host may have
        s = socket.socket()
        s.settimeout(1)
        try:
            s.bind((f"127.0.0.{host}", 0))
            s.connect(("127.0.0.2", int(sys.argv[1])))
            if host % 2:
                s.send(b"\x16\x03\x01\x40\x00" + b"x" * 100)
        except OSError:
            pass
        silent.append(s)
    print("all", flush=True)
    del silent[:-400]
    time.sleep(0.02)
END
PID[flood]=$!
wait_until 10 grep -q all "$T/flood.log" || fail "there is no flood: $(<"$T/flood.log")"
cpu() { awk '{ print $14 + $15 }' "/proc/$DAEMON/stat"; }
before=$(cpu)
good=0
for _ in {1..10}; do
  [[ $(scrape -H "$(bearer token)") != 200 ]] || good=$((good + 1))
done
say "$good of 10 scrapes during the flood; the daemon itself used $(($(cpu) - before)) ticks"
[[ $good -ge 9 ]] || fail "a flood of others keeps $((10 - good)) of 10 scrapes out"
kill "${PID[flood]}" 2>/dev/null || true
wait "${PID[flood]}" 2>/dev/null || true
unset "PID[flood]"
counted() { scrape -H "$(bearer token)" >/dev/null; [[ $(count crowded) -gt 0 && $(count late) -gt 0 ]]; }
wait_until 10 counted || fail "they are not counted: $(grep refused "$T/scrape.log")"

say "a certificate, its key and a token that are replaced are used"
make_certificate server ca IP:127.0.0.2
make_token token
opens() { [[ $(scrape -H "$(bearer token)") == 200 ]]; }
wait_until 10 opens || fail "the new token gets nothing"
serial() { openssl x509 -noout -serial; }
served=$(openssl s_client -connect "$address" </dev/null 2>/dev/null | serial)
[[ $served == "$(serial <"$T/server.pem")" ]] || fail "it still has the old certificate"
cp "$T/token" "$T/kept"
rm "$T/token"
says_so() { scrape >/dev/null; grep -q 'the old certificate and token remain in force: read .*/token: No such file' "$T/vrdmad.log"; }
wait_until 10 says_so || fail "the log does not say that the token is gone"
[[ $(scrape) == 401 ]] || fail "without the file of the token it lets everybody in"
[[ $(scrape -H "$(bearer kept)") == 200 ]] || fail "the old token is no longer in force"

say "the process is killed: the daemon goes on, and says so"
kill -9 "$metrics"
wait_until 5 grep -q "the metrics process has ended: there are no metrics at $address" "$T/vrdmad.log" || fail "the log does not say so"
ctl vdev list >/dev/null || fail "the daemon does not answer"

say "the daemon is killed: the process ends with it, and the next one serves; clients with a certificate alone"
make_token token
start_again() { kill_daemon; start_daemon --metrics "$address" "${tls[@]}" "$@"; }
start_again --metrics-token-file "$T/token"
start_again --metrics-client-ca "$T/ca.pem"
client=(--cert "$T/client.pem" --key "$T/client.key")
[[ $(scrape "${client[@]}") == 200 ]] || fail "a client with a certificate gets nothing: $(cat "$T/curl.log")"
[[ $(scrape) == 000 ]] || fail "a client without a certificate gets an answer"
[[ $(scrape --cert "$T/other.pem" --key "$T/other.key") == 000 ]] || fail "a client with a certificate of another CA gets an answer"
stop_daemon
start_daemon --metrics "$address" "${tls[@]}" --metrics-client-ca "$T/ca.pem" --metrics-token-file "$T/token"
[[ $(scrape "${client[@]}") == 401 ]] || fail "a certificate suffices, though a token is asked for as well"
[[ $(scrape "${client[@]}" -H "$(bearer token)") == 200 ]] || fail "both get nothing"
