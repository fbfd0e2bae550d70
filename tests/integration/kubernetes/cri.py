"""A client of a container engine's CRI (runtime.v1.RuntimeService: api.proto of k8s.io/cri-api), as the kubelet is one.

A container that says nothing else is as the Pod Security Standard "restricted" demands: user 1000 without capabilities, no
new privileges, seccomp of the runtime, and a root that is read-only besides."""
from dataclasses import dataclass, field as member

from messages import Message, call, channel_to, field, fields, pairs

USER = 1000
CONTAINER, NODE = 1, 2  # NamespaceMode: of the container alone, of the host
RUNTIME_DEFAULT, UNCONFINED = 0, 1  # SecurityProfile.ProfileType
RUNNING, EXITED = 1, 2  # ContainerState


@dataclass
class Security:
    """The security context of a container."""
    user: int | None = USER  # None: that of the image
    add: tuple = ()
    drop: tuple = ("ALL",)
    no_new_privileges: bool = True
    read_only: bool = True
    seccomp: int | None = RUNTIME_DEFAULT  # None: the kubelet names no profile
    apparmor: int | None = None

    def message(self, namespaces):
        capabilities = fields(1, self.add) + fields(2, self.drop)
        out = field(1, capabilities) + field(3, namespaces) + user_fields(self.user, 5, 12)
        out += field(7, self.read_only) + field(11, self.no_new_privileges)
        for number, profile in (15, self.seccomp), (16, self.apparmor):
            out += b"" if profile is None else field(number, field(1, profile))
        return out


def user_fields(user, of_user, of_group):
    return b"" if user is None else field(of_user, field(1, user)) + field(of_group, field(1, user))


class Runtime:
    def __init__(self, path, image, cgroup):
        self.channel = channel_to(path)
        self.image = image
        self.cgroup = cgroup

    def call(self, method, message, timeout=60):
        return call(self.channel, "/runtime.v1.RuntimeService/" + method, message, timeout, wait=True)

    def namespaces(self, pod):
        network = field(1, NODE) if pod.host_network else b""
        return network + field(2, NODE if pod.host_pid else CONTAINER)

    def sandbox_config(self, pod):
        metadata = field(1, pod.name) + field(2, pod.uid) + field(3, pod.namespace) + field(4, pod.attempt)
        # SecurityProfile's RuntimeDefault is 0, so that its message is empty.
        security = field(1, self.namespaces(pod)) + user_fields(pod.user, 3, 8) + field(4, True) + field(9, b"")
        linux = field(1, self.cgroup) + field(2, security)
        labels = {"io.kubernetes.pod.name": pod.name, "io.kubernetes.pod.namespace": pod.namespace,
                  "io.kubernetes.pod.uid": pod.uid}
        hostname = b"" if pod.host_network else field(2, pod.name)
        logs = field(3, pod.logs)
        return field(1, metadata) + hostname + logs + pairs(6, labels) + pairs(7, pod.annotations) + field(8, linux)

    def run_sandbox(self, pod):
        return self.call("RunPodSandbox", field(1, self.sandbox_config(pod))).text(1)

    def address(self, sandbox):
        status = self.call("PodSandboxStatus", field(1, sandbox)).message(1)
        return status.message(5).text(1)

    def create(self, pod, name, attempt, container):
        """Creates a Container; returns its id. Its log, of a pod that has a directory for logs, is POD-NAME-ATTEMPT.log."""
        answer = container.answer
        mounts = [field(1, path) + field(2, host) + field(3, read_only) for path, host, read_only in answer.mounts]
        devices = [field(1, path) + field(2, host) + field(3, rights) for path, host, rights in answer.nodes]
        labels = {"io.kubernetes.container.name": name, "io.kubernetes.pod.name": pod.name,
                  "io.kubernetes.pod.namespace": pod.namespace, "io.kubernetes.pod.uid": pod.uid}
        environment = [field(1, key) + field(2, value) for key, value in answer.environment.items()]
        config = field(1, field(1, name) + field(2, attempt)) + field(2, field(1, container.image or self.image))
        config += fields(3, container.command)
        config += fields(6, environment) + fields(7, mounts) + fields(8, devices) + pairs(9, labels)
        config += pairs(10, answer.annotations)
        config += field(11, f"{pod.name}-{name}-{attempt}.log") if pod.logs else b""
        linux = field(1, field(4, container.memory)) if container.memory else b""
        config += field(15, linux + field(2, container.security.message(self.namespaces(pod))))
        config += fields(17, [field(1, device) for device in answer.cdi_devices])
        request = field(1, pod.sandbox) + field(2, config) + field(3, self.sandbox_config(pod))
        return self.call("CreateContainer", request).text(1)

    def start(self, container):
        self.call("StartContainer", field(1, container))

    def stop(self, container, seconds=0):
        """Ends it by SIGTERM, and after that time by SIGKILL."""
        self.call("StopContainer", field(1, container) + field(2, seconds), seconds + 60)

    def remove(self, container):
        self.call("RemoveContainer", field(1, container))

    def state(self, container):
        """(ContainerState, exit status)"""
        status = self.call("ContainerStatus", field(1, container)).message(1)
        return status.number(3), status.number(7)

    def execute(self, container, command, seconds):
        """The output, the errors and the exit status of a program in the container."""
        answer = self.call("ExecSync", field(1, container) + fields(2, command) + field(3, seconds), seconds + 10)
        return answer.text(1), answer.text(2), answer.number(3)

    def remove_sandbox(self, sandbox):
        self.call("StopPodSandbox", field(1, sandbox))
        self.call("RemovePodSandbox", field(1, sandbox))


class Answer:
    """What a plugin's ContainerAllocateResponse adds to a container; of several, added up."""

    def __init__(self):
        self.environment, self.annotations, self.mounts, self.nodes, self.cdi_devices = {}, {}, [], [], []

    def add(self, data, with_cdi):
        message = Message(data)
        self.environment.update(message.map(1))
        self.mounts += [(m.text(1), m.text(2), m.number(3)) for m in message.messages(2)]
        self.nodes += [(d.text(1), d.text(2), d.text(3)) for d in message.messages(3)]
        self.annotations.update(message.map(4))
        if with_cdi:
            self.cdi_devices += [c.text(1) for c in message.messages(5)]

    def lines(self):
        yield from (f"environment {key}={value}" for key, value in self.environment.items())
        yield from (f"annotation {key}={value}" for key, value in self.annotations.items())
        yield from (f"mount {path} of {host}" for path, host, _ in self.mounts)
        yield from (f"node {path} of {host}" for path, host, _ in self.nodes)
        yield from (f"cdi {name}" for name in self.cdi_devices)


@dataclass
class Container:
    command: list
    answer: Answer = member(default_factory=Answer)
    security: Security = member(default_factory=Security)
    image: str = ""  # empty: that of the runtime's pods
    memory: int = 0  # limit in bytes
