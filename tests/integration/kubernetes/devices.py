"""The kubelet's manager of devices: registration, the lists of the plugins, and which container has which device.

What it imitates is that of release 1.36, or of 1.20 where `old` is set: pkg/kubelet/cm/devicemanager."""
import base64
import json
import os
import stat
import threading
import time
from concurrent import futures

import grpc

from cri import Answer
from messages import Message, as_it_is, call, channel_to, field, fields, stream, unary

CHECKPOINT = "kubelet_internal_checkpoint"
VERSION = "v1beta1"


class Refusal(Exception):
    """Why a pod is not admitted: a sentence of the kubelet's."""


class Client:
    """The kubelet's connection to a plugin's socket."""

    def __init__(self, resource, path):
        self.resource, self.path = resource, path
        self.channel = channel_to(path)
        self.watch = None
        self.closed = False

    def connect(self):
        """Raises grpc.FutureTimeoutError after 10 s, or when close() has been called meanwhile: gRPC would not tell."""
        ready = grpc.channel_ready_future(self.channel)
        for _ in range(100):
            if self.closed:
                break
            try:
                return ready.result(timeout=0.1)
            except grpc.FutureTimeoutError:
                pass
        raise grpc.FutureTimeoutError()

    def call(self, method, message=b"", timeout=30):
        return call(self.channel, f"/{VERSION}.DevicePlugin/{method}", message, timeout)

    def close(self):
        self.closed = True
        if self.watch:
            self.watch.cancel()
        self.channel.close()


class Devices:
    def __init__(self, directory, old, say):
        self.directory, self.old, self.say = directory, old, say
        self.lock = threading.RLock()
        self.server = None
        self.clients = {}  # by resource: the last plugin that registered it
        self.streams = []  # clients with a ListAndWatch, also predecessors
        self.options = {}  # by resource: (wants PreStartContainer, has GetPreferredAllocation)
        self.healthy, self.unhealthy = {}, {}  # by resource: ids
        self.allocated = {}  # by (uid of a pod, container, resource): (ids, ContainerAllocateResponse)
        self.registrations = []  # (resource, socket, "accepted" or "refused")
        self.calls = 0  # of Allocate
        # What it does wrong, by command.
        self.refuse = False
        self.late = 0
        self.twice = False

    # ---- start and end -----------------------------------------------------------------------------

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        self.empty_directory()
        self.read_checkpoint()
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        handlers = {"Register": unary(self.register)}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{VERSION}.Registration", handlers),))
        self.server.add_insecure_port(f"unix:{self.directory}/kubelet.sock")
        self.server.start()
        self.say("the kubelet serves")

    def empty_directory(self):
        # At its start a kubelet removes what it finds in device-plugins/ apart from its checkpoint, and so the sockets of
        # plugins that run: 1.20.2 all files, 1.36 the sockets (CleanupPluginDirectory).
        for name in os.listdir(self.directory):
            path = f"{self.directory}/{name}"
            if name != CHECKPOINT and (self.old or stat.S_ISSOCK(os.lstat(path).st_mode)):
                os.unlink(path)

    def stop(self):
        self.server.stop(0).wait()
        with self.lock:
            streams, self.streams, self.clients = self.streams, [], {}
        for client in streams:
            client.close()
        self.say("the kubelet ends")

    # ---- registration ------------------------------------------------------------------------------

    def register(self, request, context):
        version, endpoint, resource = request.text(1), request.text(2), request.text(3)
        accepted = version == VERSION and not self.refuse
        with self.lock:
            self.registrations.append((resource, endpoint, "accepted" if accepted else "refused"))
        self.say(f"Register {resource} {endpoint} {'accepted' if accepted else 'refused'}")
        time.sleep(self.late)
        if not accepted:
            # The sentence of 1.36, which gRPC sends with the code Unknown as of each other error of Go.
            context.abort(grpc.StatusCode.UNKNOWN, f'requested API version "{version}" is not supported by kubelet. '
                          f'Supported version is ["{"v9" if self.refuse else VERSION}"]')
        if "/" not in resource or len(endpoint) > 100 or "/" in endpoint:
            context.abort(grpc.StatusCode.UNKNOWN, f"the ResourceName {resource} or the endpoint {endpoint} is invalid")
        path = f"{self.directory}/{endpoint}"
        if self.old:
            # 1.20 dials after it has answered, asks for no options, and stops the endpoint of a predecessor.
            options = request.message(4)
            threading.Thread(target=self.connect_old, args=(resource, path, options), daemon=True).start()
            return b""
        try:
            self.connect(resource, path)
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin {path}: {error}")
        return b""

    def connect(self, resource, path):
        client = Client(resource, path)
        with self.lock:
            self.clients[resource] = client  # before it is connected: connectClient()
        try:
            client.connect()
            # 1.36 asks for the options while the plugin waits for the answer of Register (PluginConnected), so that a
            # plugin must serve before it registers.
            self.use(client, client.call("GetDevicePluginOptions"))
        except Exception:
            with self.lock:
                self.clients.pop(resource, None)
            client.close()
            raise

    def connect_old(self, resource, path, options):
        client = Client(resource, path)
        try:
            client.connect()
        except grpc.FutureTimeoutError:
            self.say(f"nothing listens on {path}")
            return
        with self.lock:
            predecessor = self.clients.get(resource)
            self.clients[resource] = client
            self.use(client, options)
        if predecessor:
            predecessor.close()

    def use(self, client, options):
        with self.lock:
            self.options[client.resource] = (options.number(1), options.number(2))
            client.watch = stream(client.channel, f"/{VERSION}.DevicePlugin/ListAndWatch")
            self.streams.append(client)
        threading.Thread(target=self.listen, args=(client,), daemon=True).start()

    def listen(self, client):
        try:
            for message in client.watch:
                self.receive(client.resource, message)
        except grpc.RpcError as error:
            self.say(f"the stream of {client.resource} ends: {error.code().name} {error.details()}")
        with self.lock:
            if client in self.streams:
                self.streams.remove(client)
            # 1.36 looks the client up by its resource when a stream has ended (runClient): where a successor has
            # registered the resource meanwhile, the end of the predecessor's stream disconnects the successor. Its devices
            # are Unhealthy until it registers again. 1.20 knows which endpoint has ended, and so do the sources after 1.36.
            # The reverse is also true: a predecessor whose stream continues is not asked again when the successor ends.
            ended = self.clients.get(client.resource)
            if ended is None or (self.old and ended is not client):
                return
            del self.clients[client.resource]
            ended.close()
            ids = self.healthy.get(client.resource, set())
            self.unhealthy.setdefault(client.resource, set()).update(ids)
            self.healthy[client.resource] = set()
        self.say(f"disconnected {client.resource}")

    def receive(self, resource, message):
        devices = [(one.text(1), one.text(2)) for one in message.messages(1)]
        with self.lock:
            # Each message is the whole list.
            self.healthy[resource] = {name for name, health in devices if health == "Healthy"}
            self.unhealthy[resource] = {name for name, health in devices if health != "Healthy"}
            self.say(f"list {resource} healthy={len(self.healthy[resource])} unhealthy={len(self.unhealthy[resource])}")
        wrong = [name for name, health in devices if health not in ("Healthy", "Unhealthy") or len(name) > 63]
        if wrong or len({name for name, _ in devices}) != len(devices):
            self.say(f"WRONG list of {resource}: {devices}")

    def cut(self, resource, predecessors):
        """Ends ListAndWatch of the last plugin of a resource, or of those before it."""
        with self.lock:
            chosen = [c for c in self.streams
                      if c.resource == resource and (self.clients.get(resource) is not c) == predecessors]
        for client in chosen:
            client.watch.cancel()
        return len(chosen)

    # ---- which container has which device ------------------------------------------------------------

    def status(self):
        with self.lock:
            for resource in sorted({*self.healthy, *self.unhealthy}):
                healthy, all_ = len(self.healthy[resource]), len(self.healthy[resource] | self.unhealthy[resource])
                connected = "connected" if resource in self.clients else "disconnected"
                yield f"{resource} capacity={all_} allocatable={healthy} {connected}"

    def allocate(self, uid, container, limits, ended):
        """The Answer for a container of a pod. `ended` are uids of pods that have ended: their devices are free now, when
        the next pod is admitted (UpdateAllocatedDevices)."""
        with self.lock:
            self.allocated = {key: value for key, value in self.allocated.items() if key[0] not in ended}
            for resource, number in limits.items():
                self.allocate_resource((uid, container, resource), number)
            self.write_checkpoint()
            return self.stored_answer(uid, container)

    def allocate_resource(self, key, number):
        resource = key[2]
        # A container that is admitted again, after a restart of the kubelet, keeps what it has without a call.
        if len(self.allocated.get(key, ([],))[0]) == number:
            return
        healthy = self.healthy.get(resource)
        if healthy is None or resource not in self.options:
            raise Refusal(f"Allocate failed due to can't allocate unregistered device {resource}, which is unexpected")
        if not healthy:
            raise Refusal(f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {resource}, "
                          "which is unexpected")
        used = {name for (_, _, other), (ids, _) in self.allocated.items() if other == resource for name in ids}
        free = healthy - used
        if self.twice:
            # 1.20.2 once gave one id to two pods that it found before the plugin registered.
            free, self.twice = healthy & used or healthy, False
        if len(free) < number:
            raise Refusal(f"Allocate failed due to requested number of devices unavailable for {resource}. "
                          f"Requested: {number}, Available: {len(free)}, which is unexpected")
        ids = self.choose(resource, sorted(free), number)
        client = self.clients.get(resource)
        if client is None:
            raise Refusal(f"Allocate failed due to endpoint {resource} stopped, which is unexpected")
        self.calls += 1
        self.say(f"Allocate {' '.join(ids)} of {resource}")
        try:
            response = client.call("Allocate", field(1, fields(1, ids)))
        except grpc.RpcError as error:
            raise Refusal(f"Allocate failed due to rpc error: code = {error.code().name} desc = {error.details()}, "
                          "which is unexpected") from error
        answers = response.values.get(1, [])
        if len(answers) != 1:
            raise Refusal(f"Allocate failed due to {len(answers)} answers for one container, which is unexpected")
        self.allocated[key] = (ids, answers[0])

    def choose(self, resource, free, number):
        preferred = []
        if self.options[resource][1] and resource in self.clients:
            request = field(1, fields(1, free) + field(3, number))
            try:
                answers = self.clients[resource].call("GetPreferredAllocation", request).messages(1)
            except grpc.RpcError as error:
                raise Refusal(f"Allocate failed due to rpc error: {error.details()}, which is unexpected") from error
            preferred = [name for name in answers[0].texts(1) if name in free] if answers else []
        return [*preferred, *(name for name in free if name not in preferred)][:number]

    def stored_answer(self, uid, container):
        """What a restarted container gets, without a call of Allocate."""
        answer = Answer()
        with self.lock:
            for key, (_, data) in self.allocated.items():
                if key[:2] == (uid, container):
                    answer.add(data, with_cdi=not self.old)  # 1.20 does not know the field cdi_devices
        return answer

    def ids_of(self, uid, container):
        with self.lock:
            return [name for key, (ids, _) in self.allocated.items() if key[:2] == (uid, container) for name in ids]

    def before_start(self, uid, container):
        with self.lock:
            mine = [(key[2], ids) for key, (ids, _) in self.allocated.items() if key[:2] == (uid, container)]
        for resource, ids in mine:
            if self.options.get(resource, (0, 0))[0] and resource in self.clients:
                self.clients[resource].call("PreStartContainer", fields(1, ids))

    # ---- the checkpoint ------------------------------------------------------------------------------

    def write_checkpoint(self):
        entries = [{"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": {"-1": ids},
                    "AllocResp": base64.b64encode(data).decode()}
                   for (uid, container, resource), (ids, data) in self.allocated.items()]
        registered = {resource: sorted(ids) for resource, ids in self.healthy.items()}
        with open(f"{self.directory}/{CHECKPOINT}", "w", encoding="ascii") as file:
            json.dump({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}, file)

    def read_checkpoint(self):
        try:
            with open(f"{self.directory}/{CHECKPOINT}", encoding="ascii") as file:
                data = json.load(file)["Data"]
        except FileNotFoundError:
            return
        self.allocated = {(e["PodUID"], e["ContainerName"], e["ResourceName"]):
                          (e["DeviceIDs"]["-1"], base64.b64decode(e["AllocResp"])) for e in data["PodDeviceEntries"]}
        # The capacity is 0 until the plugin registers again.
        self.healthy = {resource: set() for resource in data["RegisteredDevices"]}
        self.unhealthy = {resource: set() for resource in data["RegisteredDevices"]}
        self.options = {}
