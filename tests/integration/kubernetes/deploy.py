#!/usr/bin/python3
"""What a kubelet makes of manifests: pods of DaemonSets, by the CRI, with their volumes.

    deploy.py check MANIFESTS ARCHIVE     fails if a node could not run the DaemonSets with the image in that OCI archive

kubelet.py has the rest. Of a pod's spec it reads what the manifests of packaging/kubernetes say; check() refuses other keys,
so that nothing is taken for tested that is only ignored."""
import json
import os
import shutil
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import cri  # without grpc it skips the test
import grpc

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

# What is read of a pod's spec and of a container, and what a kubelet needs for other nodes than ours or for times of want.
POD = {"hostPID", "hostNetwork", "initContainers", "containers", "volumes", "terminationGracePeriodSeconds",
       "priorityClassName", "automountServiceAccountToken", "serviceAccountName", "tolerations"}
CONTAINER = {"name", "image", "command", "securityContext", "volumeMounts", "readinessProbe", "livenessProbe", "ports",
             "resources", "env"}
NODE = "node-1"
# Without appArmorProfile, which clusters before 1.30 refuse as an unknown field; the annotation says the same to each.
SECURITY = {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "privileged", "seccompProfile"}
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class Manifests:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = [one for one in yaml.safe_load_all(file) if one]

    def of_kind(self, kind):
        return [one for one in self.all if one["kind"] == kind]

    def daemons(self):
        """(namespace/name, the template of the pods)"""
        return {full_name(one): one["spec"]["template"] for one in self.of_kind("DaemonSet")}

    def maps(self):
        """The files of each ConfigMap."""
        return {full_name(one): one["data"] for one in self.of_kind("ConfigMap")}


def full_name(one):
    return f"{one['metadata'].get('namespace', 'default')}/{one['metadata']['name']}"


def containers_of(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


# ---- what a node could not run ---------------------------------------------------------------------


def programs_of(archive):
    """The programs in the image of an OCI archive, and the image's name."""
    with tarfile.open(archive) as tar:
        def blob(described):
            return tar.extractfile("blobs/" + described["digest"].replace(":", "/"))
        [described] = json.load(tar.extractfile("index.json"))["manifests"]
        programs = set()
        for layer in json.load(blob(described))["layers"]:
            with tarfile.open(fileobj=blob(layer)) as files:
                programs |= {"/" + one.name.removeprefix("./") for one in files if one.isfile() and one.mode & 0o111}
        return programs, described["annotations"]["org.opencontainers.image.ref.name"]


def complaints_of(name, spec, programs, tag, maps, accounts):
    def unknown(what, has, known):
        yield from (f"{what}: the key {key} is not tested, or not known to each cluster" for key in sorted(set(has) - known))

    yield from unknown(name, spec, POD)
    account = spec.get("serviceAccountName")
    if account and f"{name.split('/')[0]}/{account}" not in accounts:
        yield f"{name}: there is no ServiceAccount {account}"
    if bool(account) != spec["automountServiceAccountToken"]:
        yield f"{name}: has a token without an account, or an account without a token"
    volumes = {}
    for volume in spec.get("volumes", []):
        volumes[volume["name"]] = volume
        if "hostPath" in volume and not volume["hostPath"]["path"].startswith("/"):
            yield f"{name}: the hostPath of {volume['name']} is not absolute"
        if "configMap" in volume and f"{name.split('/')[0]}/{volume['configMap']['name']}" not in maps:
            yield f"{name}: there is no ConfigMap {volume['configMap']['name']}"
    for container in containers_of(spec):
        what = f"{name}, {container['name']}"
        security = container.get("securityContext", {})
        yield from unknown(what, container, CONTAINER)
        yield from unknown(what, security, SECURITY)
        if security.get("privileged") or security.get("allowPrivilegeEscalation", True):
            yield f"{what}: is privileged"
        if not container["image"].endswith(":" + tag):
            yield f"{what}: the image is {container['image']}, and the build makes {tag}"
        commands = [container["command"]]
        for probe in (container[kind] for kind in ("readinessProbe", "livenessProbe") if kind in container):
            if "exec" in probe:
                commands.append(probe["exec"]["command"])
            elif probe["httpGet"]["port"] not in {port["name"] for port in container["ports"]}:
                yield f"{what}: has no port {probe['httpGet']['port']}"
        yield from (f"{what}: {command[0]} is no program of the image" for command in commands if command[0] not in programs)
        mounts = container.get("volumeMounts", [])
        yield from (f"{what}: there is no volume {mount['name']}" for mount in mounts if mount["name"] not in volumes)
        for variable in container.get("env", []):
            if variable.get("valueFrom") != {"fieldRef": {"fieldPath": "spec.nodeName"}}:
                yield f"{what}: the variable {variable['name']} is not the name of the node"
        for option, path in zip(container["command"], container["command"][1:]):
            if option == "--runtime" and not any(path.startswith(mount["mountPath"] + "/") for mount in mounts):
                yield f"{what}: {path} is in no volume"


def check(path, archive):
    manifests = Manifests(path)
    programs, image = programs_of(archive)
    maps, daemons = manifests.maps(), manifests.daemons()
    accounts = {full_name(one) for one in manifests.of_kind("ServiceAccount")}
    complaints = [] if daemons else ["there is no DaemonSet"]
    namespaces = {full_name(one).split("/")[1] for one in manifests.of_kind("Namespace")}
    for name, template in daemons.items():
        complaints += complaints_of(name, template["spec"], programs, image.rsplit(":", 1)[1], maps, accounts)
        if name.split("/")[0] not in namespaces:
            complaints.append(f"{name}: there is no such namespace")
    print("\n".join(complaints or [f"{len(daemons)} DaemonSets of {image}"]))
    return 1 if complaints else 0


# ---- volumes ---------------------------------------------------------------------------------------


class Volumes:
    """Those of a pod, in DIRECTORY/UID/volumes as the kubelet has them."""

    def __init__(self, directory, namespace, uid, spec, maps):
        self.directory = f"{directory}/{uid}"
        self.namespace = namespace
        self.paths = {}  # by name
        self.of_maps = {}  # directories by the name of the ConfigMap
        for volume in spec.get("volumes", []):
            self.paths[volume["name"]] = self.make(volume, maps)

    def make(self, volume, maps):
        if "hostPath" in volume:
            path, kind = volume["hostPath"]["path"], volume["hostPath"].get("type", "")
            if kind == "DirectoryOrCreate":
                os.makedirs(path, 0o755, exist_ok=True)
            elif kind != "Directory" or not os.path.isdir(path):
                raise OSError(f"hostPath type check failed: {path} is not a directory")
            return path
        kind = "empty-dir" if "emptyDir" in volume else "configmap"
        path = f"{self.directory}/volumes/kubernetes.io~{kind}/{volume['name']}"
        os.makedirs(path)
        os.chmod(path, 0o777)
        if kind == "configmap":
            name = f"{self.namespace}/{volume['configMap']['name']}"
            self.of_maps[name] = path
            write_payload(path, maps[name])
        return path

    def update(self, maps):
        for name, path in self.of_maps.items():
            if name in maps:
                write_payload(path, maps[name])

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def write_payload(path, files):
    """The kubelet's AtomicWriter: FILE -> ..data/FILE, and ..data -> the directory of the newest version, by rename(2)."""
    before = os.readlink(f"{path}/..data") if os.path.lexists(f"{path}/..data") else ""
    version = time.strftime("..%Y_%m_%d_%H_%M_%S.") + uuid.uuid4().hex[:10]
    os.mkdir(f"{path}/{version}", 0o755)
    for name, text in files.items():
        with open(f"{path}/{version}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    os.symlink(version, f"{path}/..data_tmp")
    os.rename(f"{path}/..data_tmp", f"{path}/..data")
    for name in files:
        if not os.path.lexists(f"{path}/{name}"):
            os.symlink(f"..data/{name}", f"{path}/{name}")
    if before:
        shutil.rmtree(f"{path}/{before}")


# ---- pods ------------------------------------------------------------------------------------------


def of_manifest(container, volumes, annotations):
    """The Container of the CRI."""
    said = container.get("securityContext", {})
    capabilities = said.get("capabilities", {})
    profiles = {"RuntimeDefault": cri.RUNTIME_DEFAULT, "Unconfined": cri.UNCONFINED}
    apparmor = annotations.get(f"container.apparmor.security.beta.kubernetes.io/{container['name']}")
    security = cri.Security(
        user=None, add=tuple(capabilities.get("add", [])), drop=tuple(capabilities.get("drop", [])),
        no_new_privileges=not said.get("allowPrivilegeEscalation", True),
        read_only=said.get("readOnlyRootFilesystem", False),
        # Without a profile the kubelet says Unconfined, unless seccompDefault is set.
        seccomp=profiles[said.get("seccompProfile", {}).get("type", "Unconfined")], apparmor=cri.UNCONFINED if apparmor == "unconfined" else None)
    answer = cri.Answer()
    answer.environment = {variable["name"]: NODE for variable in container.get("env", [])}
    answer.mounts = [(mount["mountPath"], volumes.paths[mount["name"]], mount.get("readOnly", False))
                     for mount in container.get("volumeMounts", [])]
    memory = container.get("resources", {}).get("limits", {}).get("memory", "0Mi")
    return cri.Container(container["command"], answer, security, container["image"], int(memory[:-2]) * UNITS[memory[-2:]])


class Failure(Exception):
    """Why a pod of a DaemonSet does not run."""


class DaemonPod:
    """A pod whose containers are restarted whenever they end, until stop()."""

    user = None
    attempt = 0

    def __init__(self, runtime, name, template, volumes_of, logs, say):
        self.runtime, self.logs, self.say = runtime, logs, say
        self.namespace, self.name = name.split("/")
        self.uid = str(uuid.uuid4())
        self.spec = template["spec"]
        self.annotations = template["metadata"].get("annotations", {})
        self.host_network, self.host_pid = self.spec.get("hostNetwork", False), self.spec.get("hostPID", False)
        self.volumes = volumes_of(self)
        self.sandbox = None
        self.containers = {}  # by name: (id, attempt)
        self.ends = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def start(self):
        self.sandbox = self.runtime.run_sandbox(self)
        for container in self.spec.get("initContainers", []):
            self.run_to_end(container)
        for container in self.spec["containers"]:
            self.start_container(container, 0)
        self.watcher.start()

    def run_to_end(self, container):
        self.start_container(container, 0)
        made, _ = self.containers[container["name"]]
        while True:
            state, status = self.runtime.state(made)
            if state > cri.RUNNING:
                break
            time.sleep(0.05)
        self.say(f"{self.name}: {container['name']} ends with {status}")
        if status != 0:
            raise Failure(f"{self.namespace}/{self.name}: Init:Error: {container['name']} ends with {status}")
        del self.containers[container["name"]]

    def start_container(self, container, attempt):
        name = container["name"]
        made = self.runtime.create(self, name, attempt, of_manifest(container, self.volumes, self.annotations))
        self.containers[name] = (made, attempt)
        self.runtime.start(made)
        self.say(f"{self.name}: {name} is started, attempt {attempt}")

    def watch(self):
        """As the kubelet's PLEG, which looks once a second. Init containers do not run again."""
        while not self.ends.wait(0.1):
            for container in self.spec["containers"]:
                try:
                    self.start_again(container)
                except grpc.RpcError as error:  # the engine is started again itself
                    self.say(f"{self.name}: {error.details()}")

    def start_again(self, container):
        made, attempt = self.containers[container["name"]]
        state, status = self.runtime.state(made)
        if state != cri.EXITED or self.ends.is_set():
            return
        self.say(f"{self.name}: {container['name']} has ended with {status}")
        self.start_container(container, attempt + 1)
        self.runtime.remove(made)

    def probe(self, kind):
        """Asks the probes of that kind; the sentence of one that fails, or None."""
        for container in self.spec["containers"]:
            probe = container.get(kind + "Probe")
            if not probe:
                continue
            seconds = probe.get("timeoutSeconds", 1)
            if "exec" in probe:
                out, errors, status = self.runtime.execute(self.containers[container["name"]][0], probe["exec"]["command"], seconds)
                if status:
                    return f"{container['name']}: status {status}: {out}{errors}"
                continue
            port = {one["name"]: one["containerPort"] for one in container["ports"]}[probe["httpGet"]["port"]]
            address = "127.0.0.1" if self.host_network else self.runtime.address(self.sandbox)
            try:
                with urllib.request.urlopen(f"http://{address}:{port}{probe['httpGet']['path']}", timeout=seconds) as page:
                    if not 200 <= page.status < 400:
                        return f"{container['name']}: {page.status}"
            except urllib.error.HTTPError as error:
                return f"{container['name']}: {error.code}: {error.read().decode()}"
            except OSError as error:
                return f"{container['name']}: {error}"
        return None

    def stop(self):
        self.ends.set()
        if self.watcher.is_alive():
            self.watcher.join()
        seconds = self.spec.get("terminationGracePeriodSeconds", 30)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: self.runtime.stop(one[0], seconds), self.containers.values()))
        if self.sandbox:
            self.runtime.remove_sandbox(self.sandbox)
        self.volumes.remove()


class Deployment:
    """The DaemonSets of a node, and what of them runs."""

    def __init__(self, runtime, directory, logs, say):
        self.runtime, self.directory, self.logs, self.say = runtime, directory, logs, say
        self.pods = {}  # by namespace/name
        self.templates, self.maps = {}, {}

    def apply(self, path):
        """Passes the ConfigMaps on to the pods that run, and starts those that do not; all at a time."""
        manifests = Manifests(path)
        self.templates, self.maps = manifests.daemons(), manifests.maps()
        for pod in self.pods.values():
            pod.volumes.update(self.maps)
        missing = [name for name in self.templates if name not in self.pods]
        for name in missing:
            self.pods[name] = self.made(name, self.templates[name])
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: self.pods[name].start(), missing))

    def made(self, name, template):
        def volumes_of(pod):
            return Volumes(self.directory, pod.namespace, pod.uid, pod.spec, self.maps)
        return DaemonPod(self.runtime, name, template, volumes_of, self.logs, self.say)

    def run_once(self, name, container, command):
        """Runs a command in a pod like that of a DaemonSet with the volumes of one of its containers."""
        template = self.templates[name]
        [like] = [one for one in containers_of(template["spec"]) if one["name"] == container]
        spec = {**template["spec"], "initContainers": [{**like, "name": "once", "command": command}], "containers": []}
        pod = self.made(name + "-once", {**template, "spec": spec})
        try:
            pod.start()
        finally:
            pod.stop()

    def delete(self, name):
        self.pods.pop(name).stop()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "check":
        sys.exit(__doc__)
    sys.exit(check(*sys.argv[2:]))
