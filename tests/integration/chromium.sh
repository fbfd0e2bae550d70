# shellcheck shell=bash
# A headless browser for a test: Debian's chromium-headless-shell, driven through a pipe (chromium.py).

begin_chromium() {
  command -v chromium-headless-shell >/dev/null || skip "chromium-headless-shell is not installed"
  mkdir "$T/browser"
  mkfifo "$T/browser/ask" "$T/browser/told"
  python3 "$(dirname "$0")/chromium.py" "$T/browser/profile" <"$T/browser/ask" >"$T/browser/told" 2>"$T/browser.log" &
  PID[browser]=$!
  exec {ASK}>"$T/browser/ask" {TOLD}<"$T/browser/told"
}
# command WORD REST: one line to chromium.py, and its answer.
command_browser() {
  local answer
  echo "$*" >&"$ASK"
  read -r -t 30 answer <&"$TOLD" || fail "the browser does not answer: $(tail -5 "$T/browser.log")"
  echo "$answer"
}
browse() { [[ $(command_browser browse "$1") == ok ]] || fail "the browser does not open $1: $(tail -5 "$T/browser.log")"; }
holds() { [[ $(command_browser evaluate "!!($1)") == true ]]; }
sees() { wait_until "$1" holds "$2"; } # SECONDS, CONDITION in JavaScript
page_text() { command_browser evaluate "document.body.innerText"; }
# What it complained about: errors of scripts, what the page's policy forbids, what could not be loaded.
page_errors() { command_browser errors; }
screenshot() { [[ $(command_browser screenshot "$1") == ok ]] || fail "no screenshot: $(tail -5 "$T/browser.log")"; }
