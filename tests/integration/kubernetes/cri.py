"""A client of a container engine's CRI (runtime.v1.RuntimeService: api.proto of k8s.io/cri-api), as the kubelet is one.

Its containers are as the Pod Security Standard "restricted" demands: user 1000 without capabilities, no new privileges,
seccomp of the runtime, and a root that is read-only besides."""
from messages import Message, call, channel_to, field, fields, pairs

USER = 1000
NODE = 2  # NamespaceMode: that of the host


class Runtime:
    def __init__(self, path, image, cgroup):
        self.channel = channel_to(path)
        self.image = image
        self.cgroup = cgroup

    def call(self, method, message, timeout=60):
        return call(self.channel, "/runtime.v1.RuntimeService/" + method, message, timeout)

    def namespaces(self, pod):
        return field(1, NODE) if pod.host_network else b""

    def sandbox_config(self, pod):
        metadata = field(1, pod.name) + field(2, pod.uid) + field(3, pod.namespace) + field(4, pod.attempt)
        user = field(3, field(1, USER)) + field(8, field(1, USER))
        # SecurityProfile's RuntimeDefault is 0, so that its message is empty.
        security = field(1, self.namespaces(pod)) + user + field(4, True) + field(9, b"")
        linux = field(1, self.cgroup) + field(2, security)
        labels = {"io.kubernetes.pod.name": pod.name, "io.kubernetes.pod.namespace": pod.namespace,
                  "io.kubernetes.pod.uid": pod.uid}
        hostname = b"" if pod.host_network else field(2, pod.name)
        return field(1, metadata) + hostname + pairs(6, labels) + field(8, linux)

    def run_sandbox(self, pod):
        return self.call("RunPodSandbox", field(1, self.sandbox_config(pod))).text(1)

    def address(self, sandbox):
        status = self.call("PodSandboxStatus", field(1, sandbox)).message(1)
        return status.message(5).text(1)

    def create(self, pod, name, attempt, command, answer):
        """A container with what the answer of Allocate says; returns its id."""
        capabilities = fields(2, ["ALL"])
        security = (field(1, capabilities) + field(3, self.namespaces(pod)) + field(5, field(1, USER)) + field(7, True) +
                    field(11, True) + field(12, field(1, USER)) + field(15, b""))
        mounts = [field(1, path) + field(2, host) + field(3, read_only) for path, host, read_only in answer.mounts]
        devices = [field(1, path) + field(2, host) + field(3, rights) for path, host, rights in answer.nodes]
        labels = {"io.kubernetes.container.name": name, "io.kubernetes.pod.name": pod.name,
                  "io.kubernetes.pod.namespace": pod.namespace, "io.kubernetes.pod.uid": pod.uid}
        environment = [field(1, key) + field(2, value) for key, value in answer.environment.items()]
        config = field(1, field(1, name) + field(2, attempt)) + field(2, field(1, self.image)) + fields(3, command)
        config += fields(6, environment) + fields(7, mounts) + fields(8, devices) + pairs(9, labels)
        config += pairs(10, answer.annotations) + field(15, field(2, security))
        config += fields(17, [field(1, device) for device in answer.cdi_devices])
        request = field(1, pod.sandbox) + field(2, config) + field(3, self.sandbox_config(pod))
        return self.call("CreateContainer", request).text(1)

    def start(self, container):
        self.call("StartContainer", field(1, container))

    def stop(self, container):
        self.call("StopContainer", field(1, container))

    def remove(self, container):
        self.call("RemoveContainer", field(1, container))

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
