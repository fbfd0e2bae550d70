#include "cli/hook/setup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>

#include "cli/hook/apart.h"
#include "cli/hook/copies.h"
#include "cli/hook/daemon.h"
#include "cli/hook/init.h"
#include "cli/hook/loader_cache.h"
#include "cli/hook/show.h"
#include "cli/mounts/tree.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;
using vrdma::hook::Answer;
using vrdma::hook::Request;
using Op = Request::Op;

constexpr auto kPatience = std::chrono::milliseconds(3000);
// For an answer. vrdmad may have many hooks in hand, but the end of a container must not wait long.
constexpr std::chrono::seconds kSetUpWait{25}, kEndWait{4};
// For all that touches files of the container. It usually takes some 10 ms.
constexpr std::chrono::seconds kMountWait{10};
constexpr long kTmpfs = 0x01021994;  // TMPFS_MAGIC
const std::string kPlace = "/run/vrdma", kLibraryPlace = kPlace + "/lib";
const std::string kLoaderCache = "/etc/ld.so.cache";
// In the file system that is mounted on kPlace; the stubs in the installation's directory too.
const std::string kOwnLibraries = "/lib", kStubPlace = "/stubs", kOriginals = "/real",
                  kCache = "/ld.so.cache", kNotes = "/notes", kMemory = "/memory";
// Beside those of kLibraries; optional, because the program that needs it names its path.
const std::string kPreload = "librspreload.so";

Result<Request> request_of(const Container& container, const Config& config, const Wish& wish) {
  const Pod& pod = config.pod;
  Request request;
  request.op = Op::kSetUp;
  request.network_admin = config.network_admin ? 1 : 0;
  for (auto put : {put_text(container.id, request.container, "the id of the container"),
                   put_text(container.pod, request.pod, "the id of the pod"),
                   put_text(wish.device_class, request.device_class, "the class of the vdevice"),
                   put_text(wish.claim, request.claim, "the uid of the claim"),
                   put_text(wish.share, request.share, "the share of the claim"),
                   put_text(container.netdev, request.netdev, "the annotation vrdma.io/netdev"),
                   put_text(container.name, request.name, "the annotation vrdma.io/name"),
                   put_text(container.quota, request.quota, "the annotation vrdma.io/quota")})
    if (!put) return base::pass(std::move(put).error());
  // parse_config() leaves all four empty if one of them does not fit.
  (void)put_text(pod.pod_namespace, request.pod_namespace, "");
  (void)put_text(pod.pod_name, request.pod_name, "");
  (void)put_text(pod.pod_uid, request.pod_uid, "");
  (void)put_text(pod.container_name, request.container_name, "");
  return request;
}

Result<Config> read_config(const std::string& bundle) {
  const auto text = read_file(bundle + "/config.json", kMostConfig);
  if (!text) return base::pass(text.error());
  return parse_config(*text, bundle);
}

// Everything of the host that is shown in the container.
struct Host {
  Fd sockets;
  Sources libraries, stubs;  // by soname
  Sources trees;
  std::string notes;
};

// The directories of a vdevice's sysfs tree.
const std::vector<std::string> kTreeParts{"/device", "/infiniband_verbs"};

// vrdmad's control names a directory in the run directory, which is its own: FOLDER/NETNS, and then
// the name of a vdevice or nothing. It has no rights of root, and a tenant may have taken it over,
// so it is shown that, or nothing.
Result<Fd> clone_of_vrdmad(const std::string& run_dir, const std::string& said,
                           const std::string& folder, const std::string& vdevice,
                           const std::string& part = "") {
  const std::string end = vdevice.empty() ? vdevice : "/" + vdevice;
  const std::string named = said.ends_with(end) ? said.substr(0, said.size() - end.size()) : "";
  const std::string netns = named.substr(named.rfind('/') + 1);
  const bool is_number = !netns.empty() && netns.find_first_not_of("0123456789") == netns.npos;
  if (!is_number || !named.ends_with("/" + folder + "/" + netns))
    return base::fail(EBADMSG, "vrdmad names " + said + ", which is none of its directories");
  return clone_below(run_dir, run_dir + "/" + folder + "/" + netns + end + part, kReadOnlyData);
}

Result<Host> clone_host(const Answer& answer, const Installation& installation) {
  Host host;
  const std::string& run_dir = installation.run_dir;
  auto sockets = clone_of_vrdmad(run_dir, answer.sockets, "netns", "");
  if (!sockets) return base::pass(std::move(sockets).error());
  host.sockets = std::move(*sockets);
  const auto add = [&](Sources& sources, const std::string& name,
                       const std::string& path) -> Result<void> {
    auto tree = clone_path(installation.libraries + path, kReadOnlyCode);
    if (!tree) return base::pass(std::move(tree).error());
    sources[name] = std::move(*tree);
    return {};
  };
  std::vector<std::string> names{kPreload};
  for (const auto& library : kLibraries) names.emplace_back(library.soname);
  for (const auto& name : names)
    if (auto done = add(host.libraries, name, "/" + name); !done)
      return base::pass(std::move(done).error());
  for (const std::string name : kStubs)
    if (auto done = add(host.stubs, name, kStubPlace + "/" + name); !done)
      return base::pass(std::move(done).error());
  for (uint32_t i = 0; i < answer.vdevices; ++i)
    for (const auto& part : kTreeParts) {
      const auto& [name, tree] = answer.vdevice[i];
      auto cloned = clone_of_vrdmad(run_dir, tree, "sysfs", name, part);
      if (!cloned && cloned.error().code() != EACCES) return base::pass(std::move(cloned).error());
      // This process may not read vrdmad's files if it is a user's. Verbs needs none of them.
      if (!cloned)
        host.notes = "no vdevice is in sysfs: " + cloned.error().message() + "\n";
      else
        host.trees[tree + part] = std::move(*cloned);
    }
  return host;
}

// Of the container's mounts, all but those in sysfs and /dev.
//
// /run of the container may be on a volume that others write, who can put something else in the
// place of /run/vrdma at any moment. So what is in it is reached from its own top (inside_).
class Place {
 public:
  Place(const Root& root, const Config& config, const Answer& answer)
      : root_(root),
        config_(config),
        memory_reached_(answer.memory_reached != 0),
        sockets_("/netns" +
                 std::string(answer.sockets).substr(std::string(answer.sockets).rfind('/'))) {}

  // An earlier hook has done it all: only a hook can have mounted the sockets there.
  [[nodiscard]] bool exists() const {
    const auto place = root_.find(kPlace), sockets = root_.find(kPlace + sockets_);
    struct statx status {};
    struct statfs system {};
    return place && sockets && ::fstatfs(place->get(), &system) == 0 && system.f_type == kTmpfs &&
           ::statx(sockets->get(), "", AT_EMPTY_PATH, 0, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }

  Result<void> make(const Host& host) {
    notes_ = host.notes;
    if (auto done = mount_place(); !done) return done;
    if (auto done = put(*inside_, host.sockets, sockets_, false); !done) return done;
    if (auto done = put_libraries(host.libraries); !done) return done;
    auto cache = read_cache();
    const auto known = cache.value_or(LoaderCache());
    const auto copies = find_copies(root_, known, config_.library_path);
    if (!copies.complete)
      note("the search for copies of libibverbs and librdmacm in the image stopped after " +
           std::to_string(kMostNames) + " names; set LD_LIBRARY_PATH=" + kLibraryPlace +
           " if a program sees no device");
    if (has_adapters())
      if (auto done = keep_originals(copies); !done) return done;
    if (auto done = cover_copies(copies); !done) return done;
    const auto missing = missing_stubs(root_, known);
    for (const auto& name : missing)
      if (auto done = put(*inside_, host.stubs.at(name), kStubPlace + "/" + name, true); !done)
        return done;
    if (cache) cover_cache(std::move(*cache), missing);
    return close();
  }

 private:
  Result<void> mount_place() {
    auto target = root_.directory(kPlace);
    if (!target) return base::pass(std::move(target).error());
    auto mount = new_tmpfs();
    if (!mount) return base::pass(std::move(mount).error());
    place_ = std::move(*mount);
    if (auto attached = root_.attach(place_, *target, kPlace); !attached) return attached;
    auto inside = root_.inside(place_, kPlace);
    if (!inside) return base::pass(std::move(inside).error());
    inside_ = std::move(*inside);
    return {};
  }

  static Result<void> put(const Root& in, const Fd& tree, const std::string& path, bool file) {
    if (const size_t slash = path.rfind('/'); file && slash > 0) {  // its directory first
      auto parent = in.directory(path.substr(0, slash));
      if (!parent) return base::pass(std::move(parent).error());
    }
    const auto target = file ? in.file(path) : in.directory(path);
    if (!target) return base::pass(target.error());
    return in.attach(tree, *target, path);
  }

  Result<void> put_libraries(const Sources& libraries) const {
    for (const auto& [name, tree] : libraries)
      if (auto done = put(*inside_, tree, kOwnLibraries + "/" + name, true); !done) return done;
    for (const auto& library : kLibraries)
      if (auto done = inside_->link(kOwnLibraries + "/" + library.link, library.soname); !done)
        return done;
    return {};
  }

  // None: the image has one that cannot be replaced, as noted.
  std::optional<LoaderCache> read_cache() {
    const auto bytes = root_.read(kLoaderCache, kMostCache);
    if (!bytes && bytes.error().code() == ENOENT) return LoaderCache();
    auto cache = bytes ? read_loader_cache(*bytes) : base::pass(bytes.error());
    if (cache) return std::move(*cache);
    note(kLoaderCache + " stays as it is: " + cache.error().message());
    return {};
  }

  // Programs of the kernel's devices are in the container.
  [[nodiscard]] bool has_adapters() const {
    const auto nodes = root_.list("/dev/infiniband", kMostNames);
    return nodes && std::any_of(nodes->begin(), nodes->end(),
                                [](const Entry& node) { return node.name.starts_with("uverbs"); });
  }

  // For the drop-in libraries, which pass calls for the kernel's devices on to them.
  Result<void> keep_originals(const Copies& copies) const {
    for (const auto& library : kLibraries) {
      const auto original =
          std::find_if(copies.found.begin(), copies.found.end(),
                       [&library](const Copy& copy) { return copy.library == &library; });
      if (original == copies.found.end()) continue;
      const auto tree = clone_whole(original->file, original->path);
      if (!tree) return base::pass(tree.error());
      if (auto done = put(*inside_, *tree, kOriginals + "/" + library.soname, true); !done)
        return done;
    }
    return {};
  }

  Result<void> cover_copies(const Copies& copies) {
    for (const auto& copy : copies.found) {
      const std::string own = kOwnLibraries + "/" + copy.library->soname;
      const auto source = inside_->find_file(own);
      if (!source) return base::pass(source.error());
      const auto tree = clone_whole(*source, own);
      if (!tree) return base::pass(tree.error());
      const auto done = root_.attach(*tree, copy.file, copy.path);
      if (done) continue;
      if (done.error().code() != EXDEV) return done;
      note(done.error().message());
    }
    return {};
  }

  // Without it, programs still find the copies that were covered.
  void cover_cache(LoaderCache cache, const std::vector<std::string>& stubs) {
    for (const auto& library : kLibraries)
      for (const char* const name : {library.soname, library.link})
        cache.redirect(name, kLibraryPlace + "/" + name);
    // By the cache alone: in a directory of LD_LIBRARY_PATH they would hide those of an older glibc
    // that a program finds by its RPATH.
    for (const auto& name : stubs) cache.redirect(name, kPlace + kStubPlace + "/" + name);
    if (auto done = bind_cache(write_loader_cache(std::move(cache))); !done)
      note(kLoaderCache + " stays as it is: " + done.error().message());
  }

  Result<void> bind_cache(const std::string& bytes) const {
    if (auto done = inside_->write(kCache, bytes); !done) return done;
    const auto source = inside_->find_file(kCache);
    if (!source) return base::pass(source.error());
    const auto tree = clone_whole(*source, kCache);
    if (!tree) return base::pass(tree.error());
    if (auto done = make_read_only(*tree, kLoaderCache); !done) return done;
    return put(root_, *tree, kLoaderCache, true);
  }

  Result<void> close() const {
    if (memory_reached_)  // the library reads it: client/device/memory/table.cc
      if (auto done = inside_->write(kMemory, "reached\n"); !done) return done;
    if (!notes_.empty())
      if (auto done = inside_->write(kNotes, notes_); !done) return done;
    return make_read_only(place_, kPlace);
  }

  void note(const std::string& sentence) { notes_ += sentence + "\n"; }

  const Root& root_;
  const Config& config_;
  const bool memory_reached_;
  const std::string sockets_;  // in kPlace
  Fd place_;
  std::optional<Root> inside_;  // of place_, when it is mounted
  std::string notes_;
};

Result<void> show_devices(const Root& root, const Answer& answer, const Sources& trees) {
  std::vector<ShownVdevice> vdevices;
  for (uint32_t i = 0; i < answer.vdevices; ++i) {
    const auto& [name, tree] = answer.vdevice[i];
    const bool readable = trees.contains(tree + kTreeParts.back());
    if (readable && !root.find("/sys/class/infiniband/" + std::string(name)))
      vdevices.push_back({name, tree});
  }
  if (vdevices.empty()) return {};
  const Look look = [&root](const std::string& path) { return root.list(path); };
  return show(root, plan_devices(look, std::move(vdevices)), trees);
}

Result<void> mount_all(const Config& config, const Answer& answer, const Host& host) {
  const auto root = Root::open(config.root);
  if (!root) return base::pass(root.error());
  Place place(*root, config, answer);
  if (!place.exists())
    if (auto made = place.make(host); !made) return made;
  return show_devices(*root, answer, host.trees);
}

// vrdmad may be restarted while it has the request. The next one gives the container what the one
// before has given it.
Result<Answer> ask_for_vdevices(Daemon& daemon, const Request& request, const Init& init,
                                const std::string& run_dir) {
  const std::vector<int> fds{init.net.get(), init.process.get()};
  auto answer = daemon.ask(request, fds);
  if (answer || answer.error().code() != ECONNRESET) return answer;
  auto next = Daemon::connect(run_dir, kPatience, kSetUpWait);
  if (!next) return base::pass(std::move(next).error());
  daemon = std::move(*next);
  return daemon.ask(request, fds);
}

Result<void> mount_by(Daemon& daemon, const Container& container, const Config& config,
                      const Init& init, const Answer& answer, const Installation& installation) {
  auto host = clone_host(answer, installation);
  if (!host) return base::pass(host.error());
  for (const auto& note : container.notes) host->notes += note + "\n";
  const auto mount = [&]() -> Result<void> {
    daemon.leave();  // otherwise vrdmad could not see the end of this hook
    if (auto entered = enter_mounts(init); !entered) return entered;
    return mount_all(config, answer, *host);
  };
  return run_apart(mount, kMountWait);
}

Result<void> set_up_by(Daemon& daemon, const Container& container, const Wish& wish,
                       const Installation& installation) {
  const auto config = read_config(container.bundle);
  if (!config) return base::pass(config.error());
  const auto request = request_of(container, *config, wish);
  if (!request) return base::pass(request.error());
  const auto init = open_init(container.pid);
  if (!init) return base::pass(init.error());
  const auto answer = ask_for_vdevices(daemon, *request, *init, installation.run_dir);
  if (!answer) return base::pass(answer.error());
  if (!container.restored)
    if (auto mounted = mount_by(daemon, container, *config, *init, *answer, installation); !mounted)
      return mounted;
  Request done;
  done.op = Op::kDone;
  if (const auto ended = daemon.ask(done); !ended) return base::pass(ended.error());
  return {};
}

}  // namespace

Result<void> set_up(const Container& container, const Wish& wish,
                    const Installation& installation) {
  if (container.sandbox) return {};
  auto daemon = Daemon::connect(installation.run_dir, kPatience, kSetUpWait);
  if (!daemon) return base::pass(daemon.error());
  auto done = set_up_by(*daemon, container, wish, installation);
  if (!done) daemon->report(container.id, done.error().message());
  return done;
}

Result<void> end(const Container& container, const std::string& run_dir) {
  Request request;
  request.op = Op::kEnded;
  if (auto put = put_text(container.id, request.container, "the id of the container"); !put)
    return put;
  const auto daemon = Daemon::connect(run_dir, {}, kEndWait);
  if (!daemon) return base::pass(daemon.error());
  if (const auto ended = daemon->ask(request); !ended) return base::pass(ended.error());
  return {};
}

}  // namespace vrdma::cli::hook
