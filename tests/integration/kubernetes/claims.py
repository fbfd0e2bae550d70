"""The kubelet's manager of dynamic resources: which driver serves in plugins_registry, and what it prepares for claims.

What it imitates is that of release 1.36: pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra."""
import os
import stat
import threading
import time

import grpc

from devices import Refusal
from messages import call, channel_to, field, stream

# By the names that a plugin supports: those of a release, the best first. 1.36 asks for health by v1alpha1 alone.
DRA = {"v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1", "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1"}
HEALTH = {"v1.DRAResourceHealth": "v1", "v1beta1.DRAResourceHealth": "v1beta1", "v1alpha1.DRAResourceHealth": "v1alpha1"}
NAMES = ["UNKNOWN", "HEALTHY", "UNHEALTHY"]


class Driver:
    def __init__(self, name, endpoint, service, health):
        self.name, self.endpoint, self.service, self.health_package = name, endpoint, service, health
        self.channel = channel_to(endpoint)
        self.health = {}  # by device: (health, message, seconds until it is outdated)
        self.lists = 0
        self.watch = stream(self.channel, f"/{health}.DRAResourceHealth/NodeWatchResources")
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for message in self.watch:
                self.lists += 1
                self.health = {
                    one.message(1).text(2): (NAMES[one.number(2)], one.text(5), one.number(3) + one.number(4) - int(time.time()))
                    for one in message.messages(1)}
        except grpc.RpcError:
            self.health = {name: ("UNKNOWN", "", 0) for name in self.health}

    def call(self, method, claims):
        message = b"".join(field(1, field(1, space) + field(2, uid) + field(3, name)) for space, name, uid in claims)
        answer = call(self.channel, f"/{self.service}.DRAPlugin/{method}", message, 45)
        by_uid = {one.text(1): one.message(2) for one in answer.messages(1)}
        for _, _, uid in claims:
            if uid not in by_uid:
                raise Refusal(f"{method} skipped claim {uid}")  # NodePrepareResources left out ... claims
        return by_uid


class Claims:
    def __init__(self, root, say):
        self.registry, self.say = root + "/plugins_registry", say
        self.plugins = {}  # by the path of the socket: (name, endpoint)
        self.drivers = {}  # by name: the last that was registered
        self.refuse = ""
        self.health_version = "v1alpha1.DRAResourceHealth"
        self.dra_version = "v1.DRAPlugin"
        self.registrations = 0
        self.prepared = {}  # by uid: the ids of CDI
        os.makedirs(self.registry, exist_ok=True)
        self.ends = threading.Event()
        threading.Thread(target=self.reconcile, daemon=True).start()

    def restart(self):
        """The directory is not emptied; the new kubelet finds what is there. What was prepared is in its checkpoint."""
        self.plugins, self.drivers = {}, {}

    def reconcile(self):
        """The plugin watcher: by inotify and once a second."""
        while not self.ends.wait(0.1):
            paths = {f"{self.registry}/{name}" for name in os.listdir(self.registry) if not name.startswith(".")}
            paths = {path for path in paths if os.path.exists(path) and stat.S_ISSOCK(os.lstat(path).st_mode)}
            for path in set(self.plugins) - paths:
                name, endpoint = self.plugins.pop(path)
                if name in self.drivers and self.drivers[name].endpoint == endpoint:
                    del self.drivers[name]
                self.say(f"deregistered {name} {path}")
            for path in sorted(paths - set(self.plugins)):
                try:
                    self.register(path)
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:  # a stale socket
                        self.say(f"{path}: {error.code().name} {error.details()}")

    def register(self, path):
        with channel_to(path) as channel:
            info = call(channel, "/pluginregistration.Registration/GetInfo", b"", 1)
            kind, name, endpoint, versions = info.text(1), info.text(2), info.text(3), info.texts(4)
            refusal = self.refuse
            if kind != "DRAPlugin" or not endpoint.startswith("/") or self.dra_version not in versions or self.health_version not in versions:
                refusal = f"a registration that 1.36 does not understand: {kind} {endpoint} {versions}"
            self.registrations += 1
            call(channel, "/pluginregistration.Registration/NotifyRegistrationStatus",
                 field(1, not refusal) + field(2, refusal), 1)
        self.say(f"registered {name} {endpoint} {refusal}")
        if refusal:
            time.sleep(0.5)
            return
        self.plugins[path] = (name, endpoint)
        self.drivers[name] = Driver(name, endpoint, DRA[self.dra_version], HEALTH[self.health_version])

    def driver(self):
        if not self.drivers:
            raise Refusal("DRA driver vrdma.io is not registered")
        return self.drivers["vrdma.io"]

    def prepare(self, space, name, uid):
        """The ids of CDI. Called for each new sandbox of a pod, not when one of its containers restarts."""
        try:
            answer = self.driver().call("NodePrepareResources", [(space, name, uid)])[uid]
        except grpc.RpcError as error:
            raise Refusal(f"FailedPrepareDynamicResources: {error.details()}") from error
        if answer.text(2):
            raise Refusal(f"FailedPrepareDynamicResources: {answer.text(2)}")
        devices = answer.messages(1)
        self.prepared[uid] = [name for device in devices for name in device.texts(4)]
        return [" ".join(["device", *device.texts(1), device.text(2), device.text(3), *device.texts(4), device.text(5)]) for device in devices]

    def unprepare(self, space, name, uid):
        try:
            answer = self.driver().call("NodeUnprepareResources", [(space, name, uid)])[uid]
        except grpc.RpcError as error:
            raise Refusal(f"unprepare: {error.details()}") from error
        if answer.text(1):
            raise Refusal(f"unprepare: {answer.text(1)}")
        self.prepared.pop(uid, None)

    def status(self):
        for name, driver in self.drivers.items():
            yield f"driver {name} {driver.endpoint}"
            for device, (health, message, seconds) in sorted(driver.health.items()):
                yield f"{device} {health} {seconds > 0} {message}".rstrip()
