#!/usr/bin/env python3
"""Drives a headless Chromium through its pipe (--remote-debugging-pipe): JSON messages that end with a NUL.

    chromium.py PROFILE     PROFILE: a directory, which is made

Reads commands from standard input, one a line, and prints one line for each:

    browse ADDRESS          "ok"
    evaluate EXPRESSION     its value as JSON on one line, of a string the string
    errors                  what the console and the log have said since the last browse, on one line
    screenshot FILE         "ok": the page as a PNG"""

import base64
import json
import os
import subprocess
import sys

WINDOW = "1200,900"


class Browser:
    def __init__(self, profile):
        their_in, self.out = os.pipe()
        self.into, their_out = os.pipe()

        def place():  # the browser reads descriptor 3 and writes 4
            os.dup2(their_in, 13)
            os.dup2(their_out, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            ["chromium-headless-shell", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", f"--window-size={WINDOW}", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=sys.stderr, close_fds=False, preexec_fn=place)
        os.close(their_in)
        os.close(their_out)
        self.last, self.rest, self.session, self.errors = 0, b"", None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log":
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.rest:
            part = os.read(self.into, 1 << 20)
            if not part:
                sys.exit("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.last += 1
        question = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            question["sessionId"] = self.session
        os.write(self.out, json.dumps(question).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            what = answer.get("params", {})
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(what["exceptionDetails"]["text"])
            elif answer.get("method") == "Log.entryAdded" and what["entry"]["level"] == "error":
                self.errors.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")

    def browse(self, address):
        self.call("Page.navigate", url="about:blank")  # another fragment alone would not load the page again
        self.errors.clear()
        self.call("Page.navigate", url=address)
        return "ok"

    def evaluate(self, expression):
        value = self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")
        return (value if isinstance(value, str) else json.dumps(value)).replace("\n", " | ")

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
        return "ok"


def main():
    browser = Browser(sys.argv[1])
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "errors":
            answer = "; ".join(browser.errors)
        else:
            answer = {"browse": browser.browse, "evaluate": browser.evaluate, "screenshot": browser.screenshot}[word](rest)
        print(answer, flush=True)
    browser.process.kill()


if __name__ == "__main__":
    main()
