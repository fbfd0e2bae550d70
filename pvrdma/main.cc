// vrdma-pvrdma: a vdevice as the PCI function of a virtual machine. main() reads the options, and
// becomes the keeper (keeper/keeper.h); its child waits for the VMM. function/pci_function.h is
// what the machine sees.
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/base/end_signals.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/base/standard_streams.h"
#include "core/serve/unix_path.h"
#include "pvrdma/confine.h"
#include "pvrdma/function/pci_function.h"
#include "pvrdma/keeper/keeper.h"
#include "pvrdma/vfio_user/server.h"

namespace {

using namespace vrdma;
using base::Fd;
using base::Result;
using pvrdma::Adapter;
using pvrdma::Charge;
using pvrdma::Image;
using pvrdma::Inheritance;
using pvrdma::Keeper;
using pvrdma::PciFunction;
using pvrdma::VfioServer;

constexpr char kHelp[] =
    R"(usage: vrdma-pvrdma --socket PATH [--device NAME] [--owner USER] [--user USER]

Shows a virtual machine a vdevice of this network namespace as the PCI function 15ad:0820, which the
driver vmw_pvrdma of Linux drives. A VMM that knows vfio-user (QEMU 10.1 or later) connects to PATH.

  --socket PATH   where the VMM connects; made here, mode 0600
  --device NAME   the vdevice, as ibv_devices prints it; by default the only one
  --owner USER    gets the socket: the user that the VMM runs as
  --user USER     become this user, without capabilities, before anything is read
  --help          print this

One VMM at a time. When it goes, all that its machine made goes, and the next may connect. If the
process that serves it dies, its parent starts another, which goes on.
SIGTERM ends the process.
)";

struct Options {
  std::string socket, device, owner, user;
};

int complain(const std::string& sentence) {
  std::fprintf(stderr, "vrdma-pvrdma: %s\n", base::printable(sentence).c_str());
  return 2;
}

Result<passwd> find_user(const std::string& name) {
  errno = 0;
  const passwd* const found = ::getpwnam(name.c_str());
  if (found == nullptr) return base::fail(ENOENT, "there is no user '" + name + "'");
  return *found;
}

// A session is of the process as it was when it connected, so this comes before.
Result<void> become(const std::string& name) {
  const auto user = find_user(name);
  if (!user) return base::pass(user.error());
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user->pw_gid, user->pw_gid, user->pw_gid) != 0 ||
      ::setresuid(user->pw_uid, user->pw_uid, user->pw_uid) != 0)
    return base::fail_errno("become the user '" + name + "'");
  return {};
}

Result<Fd> listen(const Options& options) {
  auto listener = serve::listen_at(options.socket);
  if (!listener && listener.error().code() == EADDRINUSE && serve::is_stale(options.socket)) {
    ::unlink(options.socket.c_str());
    listener = serve::listen_at(options.socket);
  }
  if (!listener || options.owner.empty()) return listener;
  const auto owner = find_user(options.owner);
  if (!owner) {
    ::unlink(options.socket.c_str());
    return base::pass(owner.error());
  }
  if (auto done = serve::give_socket(options.socket, owner->pw_uid, owner->pw_gid); !done)
    return base::pass(std::move(done.error()), "give the socket to '" + options.owner + "'");
  return listener;
}

// Each range of the guest's memory keeps a descriptor, of which a process may have 1,024 by
// default.
Result<void> permit_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return base::fail_errno("getrlimit");
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * pvrdma::GuestRam::kMostRanges);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return base::fail_errno("permit more descriptors");
  return {};
}

// In the child of the keeper: the VMM that is served, and those that come.
class Door {
 public:
  Door(base::EventLoop& loop, Adapter& adapter, PciFunction& function, Image& image, Charge& charge)
      : loop_(loop), adapter_(adapter), function_(function), image_(image), charge_(charge) {}

  void come(Fd connection, const char* sentence) {
    auto server = VfioServer::serve(
        loop_, std::move(connection), function_, image_.progress, [this](const std::string& why) {
          base::log_info(why.empty() ? "the VMM has gone" : "the VMM is cut off: " + why);
          loop_.post([this] { leave(); });
        });
    if (!server) {
      base::log_warning("a VMM cannot be served: " + server.error().message());
      leave();
      return;
    }
    server_ = std::move(*server);
    adapter_.export_state().set_vmm(true);
    base::log_info(sentence);
  }

 private:
  void leave() {
    server_.reset();
    adapter_.export_state().set_vmm(false);
    function_.clear();
    charge_.gone();
    const pvrdma::Counts& all = function_.counts();
    base::log_info(
        "so far: " + std::to_string(all.commands) + " commands (" +
        std::to_string(all.commands_refused) + " refused), " + std::to_string(all.doorbells) +
        " doorbells (" + std::to_string(all.doorbells_refused) + " refused), " +
        std::to_string(all.sends) + " requests (" + std::to_string(all.requests_refused) +
        " refused), " + std::to_string(all.receives) + " receives, " +
        std::to_string(all.completions) + " completions, " + std::to_string(all.interrupts) +
        " interrupts, " + std::to_string(all.events_lost) + " events lost");
  }

  base::EventLoop& loop_;
  Adapter& adapter_;
  PciFunction& function_;
  Image& image_;
  Charge& charge_;
  std::unique_ptr<VfioServer> server_;
};

Result<void> serve(const Options& options, const Fd& image_file, Inheritance inherited) {
  if (auto done = pvrdma::keep_others_out(); !done) return done;
  Charge charge(std::move(inherited.keeper));
  auto image = Image::map(image_file);
  if (!image) return base::pass(image.error());
  auto loop = base::EventLoop::create();
  if (!loop) return base::pass(loop.error());
  auto adapter = Adapter::open(**loop, options.device);
  if (!adapter) return base::pass(adapter.error());
  if (!inherited.is_first) ++image->at<Image>(0)->counts.replaced;
  auto function =
      PciFunction::create(**loop, **adapter, *image->at<Image>(0), charge,
                          [&](uint32_t slot) { return std::exchange(inherited.slots[slot], {}); });
  if (!function) return base::pass(function.error());
  Door door(**loop, **adapter, **function, *image->at<Image>(0), charge);
  auto watch = (*loop)->watch(charge.fd(), EPOLLIN, [&](uint32_t) {
    auto vmm = charge.receive();
    if (!vmm)
      (*loop)->stop();
    else if (vmm->valid())
      door.come(std::move(*vmm), "a VMM has connected");
  });
  if (!watch) return base::pass(watch.error());
  if (auto done = pvrdma::confine_system_calls(pvrdma::Role::kParser); !done) return done;
  (*adapter)->export_state().begin(options.socket, vrdma::ipc::DoorbellMode::kTrap);
  charge.ready();
  if (inherited.is_first)
    base::log_info(std::string("ready: ") + ::ibv_get_device_name((*adapter)->context()->device) +
                   " at " + options.socket);
  if (inherited.vmm.valid()) door.come(std::move(inherited.vmm), "the VMM is served again");
  (*loop)->run();
  return {};
}

// A VMM connects as often as it likes, and a guest says what it likes.
constexpr uint64_t kSentencesASecond = 10;

Result<int> run(const Options& options) {
  base::limit_log(kSentencesASecond);
  auto listener = listen(options);
  if (!listener) return base::pass(listener.error());
  if (!options.user.empty())
    if (auto done = become(options.user); !done) return base::pass(done.error());
  if (auto done = permit_descriptors(); !done) return base::pass(done.error());
  if (auto done = pvrdma::keep_others_out(); !done) return base::pass(done.error());
  auto signals = base::catch_end_signals();
  if (!signals) return base::pass(signals.error());
  // The guest's memory is that of files: it cannot be put into the library's arena, and need not.
  ::setenv("VRDMA_MEMORY", "reached", 1);
  const auto image = Image::make();
  if (!image) return base::pass(image.error());
  if (auto done = pvrdma::confine_system_calls(pvrdma::Role::kKeeper); !done)
    return base::pass(done.error());
  Keeper keeper(std::move(*listener), std::move(*signals), PciFunction::kSlots,
                [&](Inheritance inherited) {
                  const auto done = serve(options, *image, std::move(inherited));
                  return done ? 0 : (complain(done.error().message()), 1);
                });
  return keeper.run();
}

}  // namespace

int main(int argc, char** argv) {
  base::fill_standard_streams(true);
  static const option kOptions[] = {
      {"socket", required_argument, nullptr, 's'}, {"device", required_argument, nullptr, 'd'},
      {"owner", required_argument, nullptr, 'o'},  {"user", required_argument, nullptr, 'u'},
      {"help", no_argument, nullptr, 'h'},         {nullptr, 0, nullptr, 0}};
  Options options;
  for (int one = 0; (one = ::getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (one) {
      case 's':
        options.socket = optarg;
        break;
      case 'd':
        options.device = optarg;
        break;
      case 'o':
        options.owner = optarg;
        break;
      case 'u':
        options.user = optarg;
        break;
      case 'h':
        std::fputs(kHelp, stdout);
        return 0;
      default:
        return 2;
    }
  }
  if (optind != argc) return complain(std::string("there is no argument '") + argv[optind] + "'");
  if (options.socket.empty()) return complain("--socket is missing; see --help");
  const auto done = run(options);
  if (done) return *done;
  (void)complain(done.error().message());
  return 1;
}
