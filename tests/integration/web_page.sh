#!/bin/bash
# web_page.sh: the page of `vrdmactl web` in a browser: it appears, follows traffic and refusals, and a restart of vrdmad.
#
#     netns a                netns b                 the host
#   +-----------+  veth    +-------------+     +-----------------------------------+
#   | va -- eth0|==========|eth0 -- vb   |     | vrdmad -- vrdmactl web -- Chromium |
#   +-----------+          +-------------+     +-----------------------------------+
#
# VRDMA_SCREENSHOT=FILE: also a picture of it, for docs/observe.md.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/chromium.sh"
setup
begin_chromium
port=$((20000 + $$ % 40000))
start_daemon
netns_add a b c d e
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
join c eth0 10.1.0.1/24 d eth0 10.1.0.2/24
loose e eth0
ip_in e address add 10.0.1.1/24 dev eth0
vdev_create web0 a eth0 --tenant shop --fabric shop --quota qp=64,mr_bytes=1g
vdev_create cache0 b eth0 --tenant shop --fabric shop --quota qp=64,mr_bytes=1g
vdev_create web1 e eth0 --tenant shop --fabric shop --quota qp=64,mr_bytes=1g
vdev_create train0 c eth0 --tenant lab --fabric shared --quota qp=4
vdev_create store0 d eth0 --tenant storage --fabric shared
ctl tenant set shop --ceiling qp=256,mr_bytes=4g >/dev/null
ctl tenant set lab --ceiling qp=16 >/dev/null

VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" web --listen "127.0.0.1:$port" >"$T/address" 2>"$T/web.log" &
PID[web]=$!
wait_until 10 grep -q '^http://' "$T/address" || fail "it prints no address: $(<"$T/web.log")"

say "it appears"
browse "$(<"$T/address")"
sees 20 "document.querySelector('#status').textContent == 'live'" || fail "it is not live: $(page_text)"
sees 5 "document.querySelectorAll('#vdevices tr').length == 5 && document.querySelectorAll('#picture .box').length == 5" || fail "it shows $(page_text)"
sees 5 "document.querySelectorAll('#picture .link').length == 0" || fail "there are links without queue pairs"
[[ -z $(page_errors) ]] || fail "the browser complains: $(page_errors)"

say "it follows traffic and refusals"
spawn server a nobody ib_write_bw -F -d web0 -D 60 -p 18601
wait_until 20 listens server 18601 || fail "the server does not listen"
spawn client b nobody ib_write_bw -F -d cache0 -D 60 -p 18601 10.0.0.1
spawn server2 c nobody ib_write_bw -F -d train0 -D 60 -p 18602
wait_until 20 listens server2 18602 || fail "the server does not listen"
spawn client2 d nobody ib_write_bw -F -d store0 -D 60 -p 18602 10.1.0.1
sees 20 "document.querySelector('#picture .link.direct.busy') && document.querySelector('#picture .link.mediated.busy')" || fail "no traffic: $(page_text)"
spawn greedy c nobody ib_send_bw -F -d train0 -q 8 -p 18700
wait_until 20 listens greedy 18700 || fail "the greedy server does not listen"
spawn greedy_client d nobody ib_send_bw -F -d store0 -q 8 -p 18700 10.1.0.1
reap greedy 20
reap greedy_client 20
sees 10 "document.querySelector('#events .refusal')?.textContent.includes('more qp than the limit of 4')" || fail "no refusal: $(page_text)"
if [[ -n ${VRDMA_SCREENSHOT:-} ]]; then sleep 20; screenshot "$VRDMA_SCREENSHOT"; fi

say "it follows a restart of vrdmad"
kill_daemon
sees 10 "document.querySelector('#status').className == 'bad'" || fail "it does not say that vrdmad has ended: $(page_text)"
start_daemon
sees 20 "document.querySelector('#status').textContent == 'live' && document.querySelector('#picture .link.direct.busy')" || fail "after the restart: $(page_text)"

say "another token is refused with a sentence"
browse "$(sed 's/#.*/#00000000000000000000000000000000/' "$T/address")"
sees 10 "document.querySelector('#status').textContent.includes('open the address that')" || fail "it says: $(page_text)"
kill_programs server client server2 client2
