#!/usr/bin/python3
"""api_server.py PORT DIRECTORY CONTROL: a stand-in for the API server of a cluster, and for its scheduler.

Serves https with the certificate and the key in DIRECTORY (server.crt, server.key), to clients that send the token in
DIRECTORY/token. It knows nodes, resource.k8s.io/v1 ResourceSlices and ResourceClaims, as release 1.36.2 showed them: lists by
field selectors, watches, resourceVersion and its conflicts, quantities in their canonical form. ask.py sends it commands by the
socket CONTROL:

    claim NAMESPACE/NAME UID DEVICE... [--capacity NAME=QUANTITY]... [--node NODE] [--driver DRIVER] [--no-share-id] [--config DRIVER]
                            the claim has these devices, each with a share; replaces a claim of that name
    deallocate | delete-claim NAMESPACE/NAME
    share NAMESPACE/NAME    the shareID of each of its devices
    slices                  a line for each: name, generation, number of slices, devices
    slice NAME              its JSON
    foreign NODE            a slice of another driver on that node, and one of this driver on another node
    delete-slices           as a kubelet does when it starts
    drop FIELD...           of devices, that it does not store: as a feature gate that is off
    be well|slow|nonsense|error|huge|deaf                       slow: answers after 20 s; deaf: does not answer at all
    away | back             nothing listens
    token TEXT              the only one that is valid
    requests                how many of each verb and kind
"""
import argparse
import json
import re
import ssl
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import control

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = re.compile(r"/apis/resource\.k8s\.io/v1/namespaces/([^/]+)/resourceclaims/([^/]+)")


def say(text):
    print(f"{time.time():.3f} {text}", flush=True)


class Failure(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason

    def status(self):
        return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(self), "reason": self.reason, "code": self.code}


def canonical(quantity):
    """Quantity.String() of whole numbers: 64000 is 64k."""
    if not quantity.isdigit():
        return quantity
    number, suffix = int(quantity), ""
    for next_suffix in "kMGTPE":
        if number == 0 or number % 1000:
            break
        number, suffix = number // 1000, next_suffix
    return f"{number}{suffix}"


class Cluster:
    def __init__(self, directory):
        self.directory = directory
        self.changed = threading.Condition()
        self.version = 1000
        self.objects = {}  # ResourceSlices by name
        self.claims = {}  # by (namespace, name)
        self.events = []  # (version, type, object) of slices
        self.mood = "well"
        self.dropped = set()
        self.counts = {}
        with open(f"{directory}/token", encoding="utf-8") as file:
            self.token = file.read().strip()

    def count(self, what):
        with self.changed:
            self.counts[what] = self.counts.get(what, 0) + 1

    # ---- slices ------------------------------------------------------------------------------------

    def store(self, kind, name, body):
        """With the lock."""
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        for device in body["spec"].get("devices", []):
            for field in self.dropped:
                device.pop(field, None)
            for capacity in device.get("capacity", {}).values():
                capacity["value"] = canonical(capacity["value"])
                policy = capacity.get("requestPolicy", {})
                if "default" in policy:
                    policy["default"] = canonical(policy["default"])
                for key, value in policy.get("validRange", {}).items():
                    policy["validRange"][key] = canonical(value)
        self.objects[name] = body
        self.event(kind, body)
        return body

    def event(self, kind, body):
        self.events.append((self.version, kind, json.loads(json.dumps(body))))
        self.changed.notify_all()

    def create(self, body):
        name = body["metadata"]["name"]
        check(body)
        with self.changed:
            if name in self.objects:
                raise Failure(409, "AlreadyExists", f'resourceslices.resource.k8s.io "{name}" already exists')
            body["metadata"]["uid"] = str(uuid.uuid4())
            return self.store("ADDED", name, body)

    def replace(self, name, body):
        check(body)
        with self.changed:
            now = self.get(name)
            if body["metadata"].get("resourceVersion", now["metadata"]["resourceVersion"]) != now["metadata"]["resourceVersion"]:
                raise Failure(409, "Conflict", f'Operation cannot be fulfilled on resourceslices.resource.k8s.io "{name}": the object has been modified')
            for key in "driver", "nodeName":
                if body["spec"][key] != now["spec"][key]:
                    raise Failure(422, "Invalid", f"spec.{key}: field is immutable")
            body["metadata"]["uid"] = now["metadata"]["uid"]
            return self.store("MODIFIED", name, body)

    def get(self, name):
        if name not in self.objects:
            raise Failure(404, "NotFound", f'resourceslices.resource.k8s.io "{name}" not found')
        return self.objects[name]

    def delete(self, name):
        with self.changed:
            body = self.get(name)
            del self.objects[name]
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self.event("DELETED", body)
            return {"kind": "Status", "status": "Success"}

    def listed(self, query):
        with self.changed:
            items = [one for one in self.objects.values() if is_selected(one, query)]
            return {"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1",
                    "metadata": {"resourceVersion": str(self.version)}, "items": items}

    def watch(self, query, write):
        since, end = int(query["resourceVersion"][0]), time.monotonic() + float(query.get("timeoutSeconds", ["3600"])[0])
        if since < 1000:
            raise Failure(410, "Expired", "too old resource version")
        while time.monotonic() < end:
            with self.changed:
                new = [one for one in self.events if one[0] > since]
                if not new:
                    self.changed.wait(0.2)
            for since, kind, body in new:
                if is_selected(body, query):
                    write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
            if not new:
                write(b"")

    # ---- claims ------------------------------------------------------------------------------------

    def allocate(self, options):
        namespace, name = options.name.split("/")
        results = []
        for index, device in enumerate(options.devices):
            result = {"request": f"request-{index}/first", "driver": options.driver, "pool": options.node, "device": device}
            if not options.no_share_id:
                result["shareID"] = str(uuid.uuid4())
            if options.capacity:
                result["consumedCapacity"] = dict(one.split("=") for one in options.capacity)
            results.append(result)
        devices = {"results": results}
        if options.config:
            devices["config"] = [{"source": "FromClaim", "opaque": {"driver": options.config, "parameters": {"kind": "Anything"}}}]
        # One of another driver, as in a claim for a GPU beside its network.
        results.append({"request": "gpu", "driver": "gpu.example", "pool": options.node, "device": "gpu-0"})
        with self.changed:
            self.claims[namespace, name] = {
                "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
                "metadata": {"namespace": namespace, "name": name, "uid": options.uid},
                "spec": {"devices": {"requests": []}},
                "status": {"allocation": {"devices": devices}, "reservedFor": [{"resource": "pods", "name": name, "uid": str(uuid.uuid4())}]}}
        return [result["shareID"] for result in results if "shareID" in result]

    def claim(self, namespace, name):
        with self.changed:
            if (namespace, name) not in self.claims:
                raise Failure(404, "NotFound", f'resourceclaims.resource.k8s.io "{name}" not found')
            return self.claims[namespace, name]


def is_selected(body, query):
    for selector in query.get("fieldSelector", [""])[0].split(","):
        key, _, value = selector.partition("=")
        if key and body["spec"].get(key.removeprefix("spec.")) != value:
            return False
    return True


def check(body):
    """What 1.36.2 refuses of a slice, as far as a driver could come near it."""
    spec, wrong = body["spec"], []
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", body["metadata"]["name"]) or len(body["metadata"]["name"]) > 253:
        wrong.append("metadata.name")
    if len(spec["devices"]) > (64 if any("taints" in one for one in spec["devices"]) else 128):
        wrong.append("spec.devices: Too many")
    if spec["pool"]["generation"] < 1 or spec["pool"]["resourceSliceCount"] < 1:
        wrong.append("spec.pool")
    names = [device["name"] for device in spec["devices"]]
    if len(set(names)) != len(names) or not all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names):
        wrong.append("spec.devices[].name")
    for device in spec["devices"]:
        for name, value in device.get("attributes", {}).items():
            if len(value) != 1 or len(value["string"]) > 64 or not re.fullmatch(r"([a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}", name):
                wrong.append(f"attributes[{name}]")
        for name, capacity in device.get("capacity", {}).items():
            numbers = [capacity["value"], *capacity["requestPolicy"]["validRange"].values(), capacity["requestPolicy"]["default"]]
            values = {key: int(value) for key, value in zip(("value", *capacity["requestPolicy"]["validRange"], "default"), numbers)}
            if not 0 <= values["min"] <= values["default"] <= values["max"] <= values["value"] < 1 << 63:
                wrong.append(f"capacity[{name}]: {values}")
    for owner in body["metadata"].get("ownerReferences", []):
        if not owner.get("uid"):
            wrong.append("metadata.ownerReferences[].uid")
    if wrong:
        raise Failure(422, "Invalid", f'ResourceSlice.resource.k8s.io "{body["metadata"]["name"]}" is invalid: {", ".join(wrong)}')


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        say(format % arguments)

    def answer(self, code, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def write_chunk(self, data):
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        elif self.server.gone or self.cluster.mood != "well":
            raise ConnectionAbortedError

    def is_in_a_mood(self):
        mood = self.cluster.mood
        if mood == "slow":
            time.sleep(20)
        if mood == "deaf":
            time.sleep(120)
        if mood in ("slow", "deaf"):
            self.close_connection = True
        if mood == "nonsense":
            self.answer(200, b"<html>a captive portal</html>")
        if mood == "error":
            self.answer(503, Failure(503, "ServiceUnavailable", "etcdserver: request timed out").status())
        if mood == "huge":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            while True:
                self.wfile.write(b"[" * (1 << 16))
        return mood != "well"

    def handle_it(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        try:
            if self.server.gone:
                raise ConnectionAbortedError
            if self.is_in_a_mood():
                return
            if self.headers.get("Authorization") != "Bearer " + self.cluster.token:
                raise Failure(401, "Unauthorized", "Unauthorized")
            self.route(url.path, query, body)
        except Failure as failure:
            self.answer(failure.code, failure.status())
        except (OSError, ssl.SSLError):
            self.close_connection = True

    def route(self, path, query, body):
        cluster, method = self.cluster, self.command
        claim = CLAIM.fullmatch(path)
        kind = "claims" if claim else "nodes" if path.startswith("/api/v1/nodes/") else "slices"
        cluster.count(f"{'watch' if 'watch' in query else method.lower()} {kind}")
        if claim and method == "GET":
            self.answer(200, cluster.claim(*claim.groups()))
        elif kind == "nodes" and method == "GET":
            self.answer(200, {"kind": "Node", "metadata": {"name": path.rsplit("/", 1)[1], "uid": "5e3e7a52-0000-4000-8000-000000000001"}})
        elif path == SLICES and method == "GET" and "watch" in query:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            cluster.watch(query, self.write_chunk)
            self.wfile.write(b"0\r\n\r\n")
        elif path == SLICES and method == "GET":
            self.answer(200, cluster.listed(query))
        elif path == SLICES and method == "POST":
            self.answer(201, cluster.create(body))
        elif path.startswith(SLICES + "/") and method == "PUT":
            self.answer(200, cluster.replace(path.rsplit("/", 1)[1], body))
        elif path.startswith(SLICES + "/") and method == "DELETE":
            self.answer(200, cluster.delete(path.rsplit("/", 1)[1]))
        else:
            raise Failure(403, "Forbidden", f"the account may not {method} {path}")

    do_GET = do_POST = do_PUT = do_DELETE = handle_it


class Server(ThreadingHTTPServer):
    daemon_threads = True
    gone = False  # also for connections that are open

    def __init__(self, port, directory):
        self.directory = directory
        super().__init__(("127.0.0.1", port), Handler)

    def finish_request(self, request, client_address):
        # In the thread of the connection, so that a client that says nothing keeps no other waiting.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.directory}/server.crt", f"{self.directory}/server.key")
        try:
            with context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)
        except OSError as error:
            say(f"a connection ends: {error}")


class Control:
    def __init__(self, options):
        self.options = options
        self.cluster = Handler.cluster = Cluster(options.directory)
        self.server = None
        self.back()

    def back(self):
        self.server = Server(self.options.port, self.options.directory)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def away(self):
        self.server.gone = True
        self.server.shutdown()
        self.server.server_close()

    def run(self, words):
        """(output, errors, status)"""
        try:
            return "".join(line + "\n" for line in self.carry_out(words)), "", 0
        except (Failure, KeyError, OSError) as failure:
            return "", f"{failure}\n", 1

    def carry_out(self, words):
        parser = argparse.ArgumentParser()
        parser.add_argument("--capacity", action="append", default=[])
        parser.add_argument("--node", default="node-1")
        parser.add_argument("--driver", default="vrdma.io")
        parser.add_argument("--no-share-id", action="store_true")
        parser.add_argument("--config")
        parser.add_argument("call")
        parser.add_argument("name", nargs="?")
        parser.add_argument("uid", nargs="?")
        parser.add_argument("devices", nargs="*")
        options = parser.parse_args(words)
        cluster = self.cluster
        if options.call == "claim":
            return cluster.allocate(options)
        if options.call in ("deallocate", "delete-claim", "share"):
            key = tuple(options.name.split("/"))
            if options.call == "share":
                return [one.get("shareID", "") for one in cluster.claims[key]["status"]["allocation"]["devices"]["results"][:-1]]
            with cluster.changed:
                claim = cluster.claims.pop(key)
                if options.call == "deallocate":
                    cluster.claims[key] = {**claim, "status": {}}
        elif options.call == "slices":
            return [f"{name} generation={one['spec']['pool']['generation']} of={one['spec']['pool']['resourceSliceCount']} "
                    f"{' '.join(device['name'] + ('!' + device['taints'][0]['value'] if 'taints' in device else '') for device in one['spec']['devices'])}"
                    for name, one in sorted(cluster.objects.items())]
        elif options.call == "slice":
            return [json.dumps(cluster.get(options.name), sort_keys=True)]
        elif options.call == "foreign":
            for name, driver, node in ("other-driver", "gpu.example", options.name), ("other-node", "vrdma.io", "node-9"):
                cluster.create({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
                    "driver": driver, "nodeName": node, "devices": [], "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
        elif options.call == "delete-slices":
            for name in [name for name, one in cluster.objects.items() if one["spec"]["nodeName"] == "node-1" and one["spec"]["driver"] == "vrdma.io"]:
                cluster.delete(name)
        elif options.call == "drop":
            cluster.dropped = set(words[1:])
        elif options.call == "be":
            cluster.mood = options.name
        elif options.call == "away":
            self.away()
        elif options.call == "back":
            self.back()
        elif options.call == "token":
            cluster.token = options.name
        elif options.call == "requests":
            return [f"{key} {number}" for key, number in sorted(cluster.counts.items())]
        else:
            raise Failure(0, "", f"there is no command {options.call}")
        return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("directory")
    parser.add_argument("control")
    options = parser.parse_args()
    control.serve(options.control, "api_server.py", Control(options).run)


if __name__ == "__main__":
    sys.exit(main())
