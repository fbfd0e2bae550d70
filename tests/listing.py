"""What ctest lists."""

import json
import subprocess


def tests_of(directory):
    """(name, command or None if it is not built, properties) of each test of a directory of ctest"""
    listing = subprocess.run(["ctest", "--test-dir", directory, "--show-only=json-v1"],
                             check=True, capture_output=True, text=True).stdout
    for one in json.loads(listing)["tests"]:
        yield one["name"], one.get("command"), {p["name"]: p["value"] for p in one.get("properties", [])}
