#!/usr/bin/python3
"""kubelet.py DIRECTORY CONTROL [--old] [--runtime SOCKET --image IMAGE --cgroup GROUP [--logs LOGS]] [--root ROOT]: a stand-in for the kubelet.

Serves device plugins in DIRECTORY as the real one does in /var/lib/kubelet/device-plugins (devices.py), and has pods run
by a container engine (cri.py), if there is one. It is of release 1.36, or with --old of 1.20. ask.py sends it commands by the
socket CONTROL:

    pod [NAMESPACE/]NAME [--uid UID] [--limit RESOURCE=NUMBER]... [--container NAME]... [--host-network] [-- COMMAND]
                               admits and starts a pod; prints lines: uid, id, cdi, annotation..., sandbox, address
    exec [NAMESPACE/]POD[/...] [--container NAME] -- COMMAND     runs a program in a container
    restart-container POD [--container NAME]                     the same container with the next attempt
    delete POD
    status                     a line for each resource: capacity, allocatable
    registrations | calls      each Register; how many calls of Allocate
    stop | start | restart     of the kubelet; containers continue
    refuse yes|no              the version of each plugin
    late SECONDS               before it answers a Register
    cut RESOURCE               ends the stream of the resource's plugin
    end-predecessor RESOURCE   ends the streams of plugins that registered the resource before
    twice                      the next pod gets an id that another one has

and with --root ROOT, of claims and the drivers in ROOT/plugins_registry (claims.py):

    pod ... --claim NAME=UID   of the pod's namespace, for each of its containers
    pod ... --cdi NAME         a CDI device that no driver named: as who could write the kubelet's checkpoint
    prepare|unprepare NAMESPACE/NAME UID     the call to the driver; lines: device, request, pool, device, CDI name, share
    drivers                    lines: a driver, and each of its devices with its health
    driver-registrations       how many there were
    refuse-driver SENTENCE     instead of registering one; empty: it registers
    versions DRA HEALTH        the names of the versions that it speaks, from the next restart on
    restart-drivers            of the kubelet, as far as it concerns them

and of DaemonSets (deploy.py), whose pods are NAMESPACE/DAEMONSET and whose containers are restarted when they end:

    apply MANIFESTS            starts the pods that do not run, and passes ConfigMaps on to those that do
    probe POD readiness|liveness                                 fails if a probe of that kind fails, and says why
    containers POD             lines: container, id, attempt
    once POD --container NAME -- COMMAND                         runs a command with the volumes of that container
"""
import argparse
import os
import sys
import time
import uuid

import grpc

import control
from claims import Claims
from cri import USER, Container, Runtime
from deploy import Deployment, Failure
from devices import Devices, Refusal


def say(text):
    print(f"{time.time():.3f} {text}", flush=True)


class Pod:
    def __init__(self, full_name, uid, host_network):
        self.namespace, self.name = full_name.rpartition("/")[::2]
        self.namespace = self.namespace or "default"
        self.uid = uid or str(uuid.uuid4())
        self.host_network = host_network
        self.host_pid = False
        self.user = USER
        self.annotations, self.logs = {}, ""
        self.attempt = 0
        self.sandbox = None
        self.command = []
        self.containers = {}  # by name: (id, attempt)
        self.claims = []  # (namespace, name, uid)
        self.cdi = []  # besides


class Kubelet:
    def __init__(self, options):
        self.devices = Devices(options.directory, options.old, say)
        self.runtime = Runtime(options.runtime, options.image, options.cgroup) if options.runtime else None
        pods = os.path.dirname(os.path.abspath(options.directory)) + "/pods"
        self.deployment = Deployment(self.runtime, pods, options.logs, say)
        self.claims = Claims(options.root, say) if options.root else None
        self.pods = {}
        self.ended = set()  # uids
        self.devices.start()

    # ---- pods --------------------------------------------------------------------------------------

    def pod_of(self, name):
        key = name if "/" in name else "default/" + name
        pod = self.pods.get(key) or self.deployment.pods.get(key)
        if not pod:
            raise Refusal(f"there is no pod {key}")
        return pod

    def pod(self, options):
        pod = Pod(options.name, options.uid, options.host_network)
        names = options.container or ["main"]
        limits = {resource: int(number) for resource, number in (limit.split("=") for limit in options.limit)}
        lines = [f"uid {pod.uid}"]
        for name in names:
            # The error of each of these is the pod's end: its phase is Failed.
            try:
                answer = self.devices.allocate(pod.uid, name, limits, self.ended)
            except Refusal as refusal:
                self.ended.add(pod.uid)
                raise Refusal(f"UnexpectedAdmissionError: {refusal}") from refusal
            lines += [f"id {name}" for name in self.devices.ids_of(pod.uid, name)]
            lines += answer.lines()
        pod.cdi = options.cdi
        pod.claims = [(pod.namespace, *claim.split("=")) for claim in options.claim]
        lines += [line for claim in pod.claims for line in self.claims.prepare(*claim)]  # before the sandbox
        self.pods[f"{pod.namespace}/{pod.name}"] = pod
        pod.command = options.command or ["sleep", "1000"]
        if self.runtime:
            pod.sandbox = self.runtime.run_sandbox(pod)
            lines.append(f"sandbox {pod.sandbox}")
            for name in names:
                self.start_container(pod, name, 0)
            lines.append(f"address {self.runtime.address(pod.sandbox)}")
        else:
            pod.containers = {name: ("", 0) for name in names}
            for name in names:
                self.devices.before_start(pod.uid, name)
        return lines

    def start_container(self, pod, name, attempt):
        # Also of a container that is restarted: from the stored answer.
        answer = self.devices.stored_answer(pod.uid, name)
        answer.cdi_devices += [device for claim in pod.claims for device in self.claims.prepared[claim[2]]] + pod.cdi
        container = self.runtime.create(pod, name, attempt, Container(pod.command, answer))
        pod.containers[name] = (container, attempt)
        self.devices.before_start(pod.uid, name)
        self.runtime.start(container)

    def restart_container(self, options):
        pod = self.pod_of(options.name)
        name = options.container[0] if options.container else next(iter(pod.containers))
        container, attempt = pod.containers[name]
        self.runtime.stop(container)
        self.runtime.remove(container)
        self.start_container(pod, name, attempt + 1)
        return []

    def execute(self, options):
        pod = self.pod_of(options.name)
        name = options.container[0] if options.container else next(iter(pod.containers))
        return self.runtime.execute(pod.containers[name][0], options.command, options.seconds)

    def delete(self, options):
        pod = self.pod_of(options.name)
        if options.name in self.deployment.pods:
            self.deployment.delete(options.name)
            return []
        if pod.sandbox:
            self.runtime.remove_sandbox(pod.sandbox)
        for claim in pod.claims:  # after its sandbox: SyncTerminatingPod
            self.claims.unprepare(*claim)
        del self.pods[f"{pod.namespace}/{pod.name}"]
        self.ended.add(pod.uid)
        return []

    # ---- claims ------------------------------------------------------------------------------------

    def prepare(self, options):
        return self.claims.prepare(*options.name.split("/"), options.kind)

    def unprepare(self, options):
        return self.claims.unprepare(*options.name.split("/"), options.kind)

    def refuse_driver(self, options):
        self.claims.refuse = options.name

    def versions(self, options):
        self.claims.dra_version, self.claims.health_version = options.name, options.kind

    # ---- DaemonSets --------------------------------------------------------------------------------

    def apply(self, options):
        self.deployment.apply(options.name)

    def probe(self, options):
        complaint = self.pod_of(options.name).probe(options.kind)
        if complaint:
            raise Refusal(complaint)

    def containers(self, options):
        return [f"{name} {container} {attempt}" for name, (container, attempt) in self.pod_of(options.name).containers.items()]

    def once(self, options):
        self.deployment.run_once(options.name, options.container[0], options.command)

    # ---- the manager of devices ------------------------------------------------------------------------

    def refuse(self, options):
        self.devices.refuse = options.name == "yes"

    def late(self, options):
        self.devices.late = float(options.name)

    def twice(self, _options):
        self.devices.twice = True

    def cut(self, options):
        return [f"{self.devices.cut(options.name, predecessors=False)} streams end"]

    def end_predecessor(self, options):
        return [f"{self.devices.cut(options.name, predecessors=True)} streams end"]

    def restart(self, _options):
        self.devices.stop()
        self.devices.start()

    def run(self, words):
        """(output, errors, status)"""
        end = words.index("--") if "--" in words else len(words)
        parser = argparse.ArgumentParser()
        parser.add_argument("--uid")
        parser.add_argument("--limit", action="append", default=[])
        parser.add_argument("--container", action="append", default=[])
        parser.add_argument("--claim", action="append", default=[])
        parser.add_argument("--cdi", action="append", default=[])
        parser.add_argument("--host-network", action="store_true")
        parser.add_argument("--seconds", type=int, default=60)
        parser.add_argument("call")
        parser.add_argument("name", nargs="?")
        parser.add_argument("kind", nargs="?")
        options = parser.parse_args(words[:end])
        options.command = words[end + 1:]
        calls = {
            "pod": self.pod, "delete": self.delete, "restart-container": self.restart_container, "refuse": self.refuse,
            "late": self.late, "twice": self.twice, "cut": self.cut, "end-predecessor": self.end_predecessor,
            "restart": self.restart, "stop": lambda _: self.devices.stop(), "start": lambda _: self.devices.start(),
            "status": lambda _: self.devices.status(), "calls": lambda _: [str(self.devices.calls)],
            "apply": self.apply, "probe": self.probe, "containers": self.containers, "once": self.once,
            "prepare": self.prepare, "unprepare": self.unprepare, "drivers": lambda _: self.claims.status(),
            "driver-registrations": lambda _: [str(self.claims.registrations)], "refuse-driver": self.refuse_driver,
            "versions": self.versions, "restart-drivers": lambda _: self.claims.restart(),
            "registrations": lambda _: [" ".join(one) for one in self.devices.registrations],
        }
        try:
            if options.call == "exec":
                return self.execute(options)
            return "".join(line + "\n" for line in calls[options.call](options) or []), "", 0
        except (Refusal, Failure, OSError) as refusal:
            return "", f"{refusal}\n", 1
        except grpc.RpcError as error:
            return "", f"{options.call}: {error.details()}\n", 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", action="store_true")
    parser.add_argument("--runtime")
    parser.add_argument("--image")
    parser.add_argument("--cgroup")
    parser.add_argument("--logs", default="")
    parser.add_argument("--root")
    parser.add_argument("directory")
    parser.add_argument("control")
    options = parser.parse_args()
    control.serve(options.control, "kubelet.py", Kubelet(options).run)


if __name__ == "__main__":
    sys.exit(main())
