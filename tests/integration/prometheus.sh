#!/bin/bash
# prometheus.sh: Debian's Prometheus reads the metrics by TLS with the token; the dashboard and the alerts are evaluated.
#
#     netns a                netns b, c               the host
#   +-----------+  veth    +-------------+     +--------------------------------------+
#   | va -- eth0|==========|eth0 -- vb   |     | vrdmad --TLS, token-- prometheus     |
#   | ib_write_bw          | ib_write_bw |     |   and three that cannot get metrics  |
#   +-----------+          +-------------+     +--------------------------------------+
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/certificates.sh"
setup
for program in prometheus promtool openssl curl; do command -v $program >/dev/null || skip "$program is not installed"; done
grafana=$(realpath "$(dirname "$0")/../../packaging/grafana")

say "the alert rules: their form, and what raises each"
promtool check rules "$grafana/alerts.yaml" || fail "the rules are not valid"
promtool test rules "$(dirname "$0")/prometheus_alerts.yaml" || fail "the rules raise other alerts"

make_ca ca
make_certificate server ca IP:127.0.0.1
make_token token
make_token wrong
port=$((20000 + $$ % 20000))
web=127.0.0.1:$((port + 20000))
start_daemon --metrics "127.0.0.1:$port" --metrics-cert "$T/server.pem" --metrics-key "$T/server.key" --metrics-token-file "$T/token"
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red --fabric shared --quota qp=1 --label pod_name=web --label pod_namespace=shop
vdev_create vb b eth0 --tenant red --fabric shared
ctl fabric set shared --reach network >/dev/null

say "Prometheus starts, and reads"
job() { # NAME, LINES OF YAML: a scrape_config
  printf '  - job_name: %s\n    static_configs: [{targets: ["127.0.0.1:%s"]}]\n' "$1" "$port"
  printf '    %s\n' "${@:2}"
}
# A host may begin 30 connections in ten seconds, so those that get nothing ask less often.
{
  echo "global: {scrape_interval: 1s, evaluation_interval: 1s}"
  echo "rule_files: ['$grafana/alerts.yaml']"
  echo "scrape_configs:"
  job vrdma "scheme: https" "authorization: {credentials_file: $T/token}" "tls_config: {ca_file: $T/ca.pem}"
  seldom="scrape_interval: 5s"
  job wrong_token "scheme: https" "authorization: {credentials_file: $T/wrong}" "tls_config: {ca_file: $T/ca.pem}" "$seldom"
  job no_token "scheme: https" "tls_config: {ca_file: $T/ca.pem}" "$seldom"
  job no_tls "scheme: http" "authorization: {credentials_file: $T/token}" "$seldom"
  job no_ca "scheme: https" "authorization: {credentials_file: $T/token}" "$seldom"
} >"$T/prometheus.yml"
promtool check config "$T/prometheus.yml" >"$T/check.log" || fail "promtool does not like its own configuration: $(<"$T/check.log")"
prometheus --config.file="$T/prometheus.yml" --storage.tsdb.path="$T/data" --web.listen-address="$web" >"$T/prometheus.log" 2>&1 &
PID[prometheus]=$!
# query EXPRESSION: the values, one a line.
query() {
  curl -sS --fail-with-body --max-time 10 --data-urlencode "query=$1" "http://$web/api/v1/query" >"$T/answer" ||
    fail "Prometheus does not answer $1: $(<"$T/answer")"
  python3 -c 'import json, sys; print(*(r["value"][1] for r in json.load(sys.stdin)["data"]["result"]), sep="\n")' <"$T/answer"
}
ready() { curl -sS --max-time 5 "http://$web/-/ready" >"$T/answer" 2>&1 && [[ -n $(query up) ]]; }
wait_until 30 ready || fail "Prometheus is not ready: $(tail -3 "$T/prometheus.log")"
is() { [[ $(query "$1" 2>/dev/null) == "$2" ]]; } # EXPRESSION VALUE
wait_until 20 is 'up{job="vrdma"}' 1 || fail "Prometheus cannot read: $(tail -3 "$T/prometheus.log")"
for job in wrong_token no_token no_tls no_ca; do
  wait_until 20 is "up{job=\"$job\"}" 0 || fail "$job: up is '$(query "up{job=\"$job\"}")'"
done
curl -sS "http://$web/api/v1/targets" | python3 -c '
import json, sys
said = {t["labels"]["job"]: t["lastError"] for t in json.load(sys.stdin)["data"]["activeTargets"]}
assert "401 Unauthorized" in said["wrong_token"] and "401 Unauthorized" in said["no_token"], said
assert "400 Bad Request" in said["no_tls"] and "certificate" in said["no_ca"], said
print({job: error for job, error in said.items() if error})' || fail "the others are refused for another reason"

say "the text is as Prometheus wants it"
curl -sS --interface 127.0.0.9 --cacert "$T/ca.pem" -H "Authorization: Bearer $(<"$T/token")" "https://127.0.0.1:$port/metrics" >"$T/metrics"
promtool check metrics <"$T/metrics" >"$T/check.log" 2>&1 || fail "promtool check metrics: $(<"$T/check.log")"
[[ ! -s $T/check.log ]] || fail "promtool check metrics: $(<"$T/check.log")"

say "a first refusal is an increase, because the series began at 0"
wait_until 10 is 'vrdma_quota_refused_total{vdevice="va",kind="qp"}' 0 || fail "the series does not begin at 0"
spawn one a nobody ibv_rc_pingpong -d va -g 0 -p 18590
has_qp() { is 'vrdma_quota_used{vdevice="va",kind="qp"}' 1; }
wait_until 20 has_qp || fail "there is no queue pair: $(<"$T/one.log")"
! on a nobody ibv_rc_pingpong -d va -g 0 -p 18600 >"$T/two.log" 2>&1 || fail "a second queue pair beyond the limit"
increased() { query 'increase(vrdma_quota_refused_total{vdevice="va",kind="qp"}[1m])' | awk '{ more = $1 > 0 } END { exit !more }'; }
wait_until 20 increased || fail "increase() does not see the first refusal"
alerts() { query "count(ALERTS{alertname=\"VrdmaQuotaRefused\",vdevice=\"va\",kind=\"qp\",alertstate=\"firing\"})"; }
raised() { [[ $(alerts) == 1 ]]; }
wait_until 20 raised || fail "the alert is not raised: $(query ALERTS)"
kill "${PID[one]}"
reap one 5

say "each expression of the dashboard is answered"
INDEX_A=$(gid_index a va 10.0.0.1)
INDEX_B=$(gid_index b vb 10.0.0.2)
pair nobody ib_write_bw -F -n 200 -s 65536
is_moved() { query 'sum(vrdma_work_bytes_total{vdevice=~"va|vb"})' | awk '{ more = $1 >= 200 * 65536 } END { exit !more }'; }
wait_until 20 is_moved || fail "Prometheus does not know what ib_write_bw has moved"
python3 - "$grafana/vrdma.json" "$web" <<'END' || fail "the dashboard has expressions without an answer"
import json, sys, urllib.parse, urllib.request
board = json.load(open(sys.argv[1]))
# Of what this test does not do: other hosts' congestion, work that fails, sessions that are refused.
MAY_BE_EMPTY = {"Failed work requests", "Memory reached instead of in place", "Sessions ended or refused"}
def ask(expr):
    url = f"http://{sys.argv[2]}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(url, timeout=10) as answer:
        got = json.load(answer)
    assert got["status"] == "success", got
    return got["data"]["result"]
asked = bad = 0
for panel in board["panels"]:
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", "1m")
        for variable in board["templating"]["list"]:
            expr = expr.replace("$" + variable["name"], ".*")
        try:
            rows = ask(expr)
        except Exception as error:
            rows, bad = [], bad + 1
            print(f"{panel['title']}: {expr}: {error}")
        asked += 1
        if not rows and panel["title"] not in MAY_BE_EMPTY:
            bad += 1
            print(f"{panel['title']}: no answer to {expr}")
        for row in rows:
            value = float(row["value"][1])
            if value != value:
                bad += 1
                print(f"{panel['title']}: {expr} gives NaN for {row['metric']}")
rows = ask('sum by (namespace, pod) (rate(vrdma_work_bytes_total[1m]) '
           '* on (instance, id) group_left (namespace, pod) vrdma_vdevice_info)')
pods = {(row["metric"].get("namespace", ""), row["metric"].get("pod", "")) for row in rows}
assert ("shop", "web") in pods, pods
print(f"{asked} expressions, {bad} without a good answer")
sys.exit(bad != 0)
END
kill "${PID[prometheus]}"
reap prometheus 10
