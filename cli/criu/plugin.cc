// The CRIU plugin vrdma_plugin.so: programs with open vdevices are dumped and restored.
//
//   PAUSE_DEVICES        the processes run: their sessions are parked and detached, their memory
//                        private
//   CHECKPOINT_DEVICES   CRIU holds it: descriptors are replaced, and the image is written
//   RESUME_DEVICES_LATE  it is restored, and CRIU holds it: all is made again, and attached
//   DUMP_EXT_MOUNT, RESTORE_EXT_MOUNT  what a container has of the host: cli/criu/mounts.h
//   at the end of a dump that failed, or leaves the program running: the same, in the source
//
// CRIU loads each plugin of its directory for each dump. A process without a vdevice costs a look
// at its mappings and sockets.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/criu/descriptors.h"
#include "cli/criu/mounts.h"
#include "cli/criu/peers.h"
#include "cli/criu/program.h"
#include "cli/criu/vrdmad.h"

namespace vrdma::cli::criu {
namespace {

using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

// CRIU's own, criu-plugin.h.
extern "C" {
__attribute__((weak)) int criu_get_image_dir(void);
__attribute__((weak)) void print_on_level(unsigned level, const char* format, ...);
__attribute__((weak)) extern int opts;  // struct cr_options, of which the first is final_state
}
constexpr int kStageDump = 0;
constexpr unsigned kError = 1, kInfo = 3;  // levels of print_on_level()
constexpr int kTaskAlive = 1;              // a final_state

// CRIU takes away stops of its children by a handler of this signal.
class ChildrenOnly {
 public:
  ChildrenOnly() {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, &before_);
  }
  ~ChildrenOnly() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  ChildrenOnly(const ChildrenOnly&) = delete;
  ChildrenOnly& operator=(const ChildrenOnly&) = delete;

 private:
  sigset_t before_{};
};

struct Source {
  ParkedProgram program;
  Image image;
  bool detached = false;
};
std::map<pid_t, Source>& sources() {
  static std::map<pid_t, Source> all;
  return all;
}
int stage = -1;

// As CRIU writes it: runc quotes lines of the log that contain "Error".
void say(unsigned level, const std::string& sentence) {
  if (print_on_level != nullptr)
    print_on_level(level, "%svrdma: %s\n", level == kError ? "Error (criu-plugin): " : "",
                   sentence.c_str());
}

int failed(pid_t pid, const base::Error& why) {
  say(kError, "process " + std::to_string(pid) + ": " + why.message());
  return -1;
}

// Of the innermost pid namespace, where it is the same after a restore.
std::string image_name(pid_t pid) {
  std::istringstream numbers(status_of(pid, "NSpid"));
  std::string innermost = std::to_string(pid);
  while (numbers >> innermost) {
  }
  return "vrdma-" + innermost + ".img";
}

Result<void> write_image(pid_t pid, const std::string& bytes) {
  const std::string name = image_name(pid);
  const Fd file(
      ::openat(criu_get_image_dir(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return fail_errno("write " + name);
  return {};
}

Result<Image> read_image(const Fd& file) {
  std::string bytes;
  char some[4096];
  for (ssize_t got = 0;
       bytes.size() <= Image::kMostBytes && (got = ::read(file.get(), some, sizeof some)) > 0;)
    bytes.append(some, static_cast<size_t>(got));
  return Image::decode(bytes);
}

// Connects the process to the sockets of its sessions, and gives it these.
Result<void> attach_at(Held& held, const ParkedProgram& program) {
  std::set<std::string> paths;
  for (const Connections& one : program.connections) paths.insert(one.socket);
  for (const Shared& session : program.sessions) paths.insert(session.socket);
  std::vector<int> sockets;
  Result<void> done;
  for (const std::string& path : paths) {
    if (!done) break;
    auto socket = connect(held, path);
    if (socket)
      sockets.push_back(*socket);
    else
      done = pass(std::move(socket).error());
  }
  if (done) done = attach(held.pid(), program);
  for (const int socket : sockets) (void)close(held, socket);
  return done;
}

// On another host, or with another vdevice: its sessions are made of their images. `here`: why they
// do not go on where they were.
Result<void> attach_elsewhere(Held& held, const Image& image, ParkedProgram program,
                              base::Error here) {
  const auto is_empty = [](const std::string& portable) { return portable.empty(); };
  const bool has_all =
      std::none_of(image.sessions.begin(), image.sessions.end(),
                   [](const Image::Session& one) { return one.portable.empty(); }) &&
      image.carried.size() == image.connections.size() &&
      std::none_of(image.carried.begin(), image.carried.end(), is_empty);
  if (!has_all) return pass(std::move(here));
  for (Shared& now : program.sessions)
    for (const Image::Session& before : image.sessions)
      if (now.number == before.number) now.portable = before.portable;
  for (size_t i = 0; i < image.carried.size(); ++i)
    program.connections[i].portable = image.carried[i];
  const auto placed = place(held.pid(), program);
  if (!placed) {
    const int code = placed.error().code();  // these two were said before
    return pass(code == EEXIST || code == EBUSY ? std::move(here) : placed.error());
  }
  for (Shared& now : program.sessions)
    for (const Shared& there : placed->sessions)
      if (now.number == there.number) now.socket = there.socket;
  if (placed->connections.size() != program.connections.size())
    return base::fail(EPROTO, "this vrdmad does not take programs with rdma_cm from elsewhere");
  for (size_t i = 0; i < program.connections.size(); ++i)
    program.connections[i].socket = placed->connections[i].socket;
  return attach_at(held, program);
}

Result<void> attach_anywhere(Held& held, const Image& image, const std::vector<Shared>& sessions) {
  ParkedProgram program{image.token, sessions, {}, {}};
  for (const std::string& socket : image.connections)
    program.connections.push_back({socket, {}, {}});
  auto done = attach_at(held, program);
  return done ? done : attach_elsewhere(held, image, std::move(program), std::move(done).error());
}

// The process goes on with its sessions, as `program` knew them where `image` does not.
Result<void> go_on(pid_t pid, const Image& image, const ParkedProgram& program) {
  auto held = Held::hold(pid);
  if (!held) return pass(std::move(held).error());
  auto made = make_again(*held, image);
  if (!made) return pass(std::move(made).error());
  for (const Shared& before : program.sessions)
    for (Shared& now : *made) {
      if (now.number != before.number) continue;
      if (now.events == 0) now.events = before.events;
      now.channels.insert(before.channels.begin(), before.channels.end());
    }
  if (!image.had_peers) return attach_anywhere(*held, image, *made);
  const auto meeting = Meeting::begin();
  if (!meeting) return pass(meeting.error());
  const auto now = show(image.token);
  if (!now && now.error().code() == ENOENT) return attach_anywhere(*held, image, *made);
  if (!now) return pass(now.error());
  auto done = meet_peers(*held, image.peers, *now, *made);
  if (done) done = attach_anywhere(*held, image, *made);
  if (!done) part_from_peers(*held, *now, *made);
  return done;
}

// Until the thread that watches memory rests.
Result<void> revert(pid_t pid, uint64_t arena) {
  constexpr int kTries = 200;
  constexpr useconds_t kPause = 5000;
  for (int tries = 1;; ++tries) {
    auto held = Held::hold(pid);
    if (!held) return pass(std::move(held).error());
    auto done = revert_memory(*held, arena);
    if (done || done.error().code() != EAGAIN || tries == kTries) return done;
    { const Held released = std::move(*held); }
    ::usleep(kPause);
  }
}

// Processes.
std::set<pid_t>& dumped() {
  static std::set<pid_t> all;
  return all;
}

// The first of all that are restored; 0: none yet, -1: they have ended.
pid_t& restored_root() {
  static pid_t root = 0;
  return root;
}

// 0, or -ENOTSUP: another plugin may know what it is.
int answer(const std::string& what, const Result<bool>& done) {
  if (done) return *done ? 0 : -ENOTSUP;
  say(kError, what + ": " + done.error().message());
  return -1;
}

int dump_mount(char* place, int id) {
  return answer(std::string("mount ") + place, dump_host_mount(dumped(), id, criu_get_image_dir()));
}

int restore_mount(int id, char* place, char*, int*) {
  return answer("mount " + std::to_string(id), restore_host_mount(id, place, criu_get_image_dir()));
}

int pause(pid_t pid) {
  if (!has_vdevice(pid)) return -ENOTSUP;
  if (is_held(pid))
    return failed(pid, base::Error(EAGAIN, "it opened a vdevice when it was frozen: try again"));
  if (const std::string why = obstacle(pid); !why.empty())
    return failed(pid, base::Error(EBUSY, "it cannot be dumped: " + why));
  auto program = park(pid);
  if (!program) return failed(pid, program.error());
  Source& source = sources()[pid];
  source.program = std::move(*program);
  source.image.token = source.program.token;
  const auto noted = note_sessions(pid, source.program, &source.image);
  if (!noted) return failed(pid, noted.error());
  const auto detached = detach(source.program.token);
  if (!detached) return failed(pid, detached.error());
  source.detached = true;
  for (Image::Session& one : source.image.sessions)
    for (const Shared& known : detached->sessions)
      if (known.number == one.number) one.portable = known.portable;
  if (detached->connections.size() == source.image.connections.size())
    for (const Connections& known : detached->connections)
      source.image.carried.push_back(known.portable);
  if (source.program.sessions.empty()) return 0;
  const auto reverted = revert(pid, source.program.sessions.front().memory);
  return reverted ? 0 : failed(pid, reverted.error());
}

// CRIU calls it for each process, but freezes the control group of a container after the first
// call. So the first one pauses all others too.
int pause_devices(int pid) {
  if (stage != kStageDump) return -ENOTSUP;
  const ChildrenOnly blocked;
  int result = -ENOTSUP;
  for (const pid_t one : dumped().empty() ? tree_of(pid) : std::vector<pid_t>{pid}) {
    dumped().insert(one);
    const int done = sources().contains(one) ? 0 : pause(one);
    if (done == -ENOTSUP) continue;
    if (done < 0) return done;
    result = 0;
  }
  return result;
}

int checkpoint_devices(int pid) {
  const auto source = sources().find(pid);
  if (source == sources().end()) return -ENOTSUP;
  const ChildrenOnly blocked;
  auto held = Held::hold(pid);
  if (!held) return failed(pid, held.error());
  Image& image = source->second.image;
  const auto taken = take_out(*held, source->second.program, &image);
  if (!taken) return failed(pid, taken.error());
  const auto written = write_image(pid, image.encode());
  return written ? 0 : failed(pid, written.error());
}

// CRIU lets processes run although this hook failed for one of them, which would find nothing of
// its own. So all end, and CRIU fails.
int ended(pid_t pid, const base::Error& why) {
  const ChildrenOnly blocked;
  (void)failed(pid, why);
  end_all(std::exchange(restored_root(), -1));
  return -1;
}

Result<void> sockets_again(pid_t pid) {
  const ChildrenOnly blocked;
  return restore_sockets(pid, criu_get_image_dir());
}

int resume_devices_late(int pid) {
  if (restored_root() == 0) restored_root() = pid;
  if (restored_root() == -1) return -1;
  if (const auto shown = sockets_again(pid); !shown) return ended(pid, shown.error());
  const Fd file(::openat(criu_get_image_dir(), image_name(pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return -ENOTSUP;
  const ChildrenOnly blocked;
  const auto image = read_image(file);
  if (!image) return ended(pid, image.error());
  const auto done = go_on(pid, *image, {});
  return done ? 0 : ended(pid, done.error());
}

// Back to how it was.
Result<void> undo(pid_t pid, const Source& source) {
  if (!source.detached) {
    auto resumed = resume(source.program.token);
    if (resumed || resumed.error().code() != EBUSY) return resumed;
    // vrdmad detached it, or a part of it, and failed then.
    if (!source.program.sessions.empty())
      if (auto reverted = revert(pid, source.program.sessions.front().memory); !reverted)
        return reverted;
  }
  return go_on(pid, source.image, source.program);
}

int begin(int of) {
  stage = of;
  return 0;
}

void end(int, int result) {
  const bool stays = result != 0 || (&opts != nullptr && opts == kTaskAlive);
  const ChildrenOnly blocked;
  for (const auto& [pid, source] : sources()) {
    if (!stays) continue;
    const auto done = undo(pid, source);
    if (done) {
      say(kInfo, "process " + std::to_string(pid) + " goes on");
      continue;
    }
    (void)failed(pid, done.error());
    // It has ended: its peers need not wait until the time of parked programs is over.
    if (done.error().code() == ESRCH) (void)abandon(source.program.token);
  }
  sources().clear();
}

}  // namespace
}  // namespace vrdma::cli::criu

// criu-plugin.h, of CRIU 4.0 and later. A newer one has more hooks, which an older one refuses.
extern "C" {
struct VrdmaPluginDescription {
  const char* name;
  int (*init)(int stage);
  void (*exit)(int stage, int result);
  unsigned version, max_hooks;
  void* hooks[12];
};
__attribute__((visibility("default"))) VrdmaPluginDescription CR_PLUGIN_DESC = {
    "vrdma",
    vrdma::cli::criu::begin,
    vrdma::cli::criu::end,
    2u << 8,
    12,
    {nullptr, nullptr, nullptr, nullptr, reinterpret_cast<void*>(vrdma::cli::criu::dump_mount),
     reinterpret_cast<void*>(vrdma::cli::criu::restore_mount), nullptr, nullptr, nullptr,
     reinterpret_cast<void*>(vrdma::cli::criu::resume_devices_late),
     reinterpret_cast<void*>(vrdma::cli::criu::pause_devices),
     reinterpret_cast<void*>(vrdma::cli::criu::checkpoint_devices)}};
}
