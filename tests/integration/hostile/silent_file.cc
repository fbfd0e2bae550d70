// A FUSE file system of one file, which is its root; another process serves it.
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "core/base/fd.h"
#include "tests/integration/hostile/attack.h"

namespace vrdma::hostile {

namespace {

void write_file(const char* path, const std::string& text) { std::ofstream(path) << text; }

template <class Body>
void reply(int fuse, uint64_t unique, const Body& body) {
  struct {
    fuse_out_header header;
    Body body;
  } message{{static_cast<uint32_t>(sizeof(fuse_out_header) + sizeof body), 0, unique}, body};
  (void)!::write(fuse, &message, sizeof message.header + sizeof body);
}

void refuse(int fuse, uint64_t unique, int error) {
  const fuse_out_header header{sizeof header, -error, unique};
  (void)!::write(fuse, &header, sizeof header);
}

[[noreturn]] void serve(int fuse, SilentFile::State* state, bool reads) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the cleaning process may depend on this server
  static char buffer[1 << 18];
  for (;;) {
    const ssize_t size = ::read(fuse, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < static_cast<ssize_t>(sizeof(fuse_in_header))) ::_exit(0);
    const auto* header = reinterpret_cast<const fuse_in_header*>(buffer);
    if (__atomic_load_n(&state->silent, __ATOMIC_ACQUIRE) != 0) {
      if (header->opcode != FUSE_FORGET && header->opcode != FUSE_INTERRUPT)
        __atomic_store_n(&state->asked, 1, __ATOMIC_RELEASE);
      continue;
    }
    switch (header->opcode) {
      case FUSE_INIT: {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = 26;
        init.max_write = 4096;
        reply(fuse, header->unique, init);
        break;
      }
      case FUSE_GETATTR: {
        fuse_attr_out attributes{};
        attributes.attr.ino = 1;
        attributes.attr.size = 1 << 20;
        attributes.attr.mode = S_IFREG | 0666;
        attributes.attr.nlink = 1;
        reply(fuse, header->unique, attributes);
        break;
      }
      case FUSE_OPEN:
        reply(fuse, header->unique, fuse_open_out{});
        break;
      case FUSE_READ:
        if (reads) reply(fuse, header->unique, std::array<char, 4096>{});
        break;
      case FUSE_FORGET:
      case FUSE_INTERRUPT:
        break;
      case FUSE_FLUSH:
      case FUSE_RELEASE:
        refuse(fuse, header->unique, 0);
        break;
      default:
        refuse(fuse, header->unique, ENOSYS);
    }
  }
}

}  // namespace

SilentFile make_silent_file(bool reads) {
  SilentFile made;
  const auto none = [&](const char* why) {
    std::cout << "   (without FUSE: " << why << ": " << std::strerror(errno) << ")" << std::endl;
    return SilentFile{};
  };
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  // A process that may not mount may do so in its own user namespace.
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return none("unshare");
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (::mount("none", "/mnt", "tmpfs", 0, nullptr) != 0) return none("mount tmpfs");
  const base::Fd fuse(::open("/dev/fuse", O_RDWR));
  if (!fuse.valid()) return none("/dev/fuse");
  write_file("/mnt/silent", "");
  const std::string options =
      "fd=" + std::to_string(fuse.get()) + ",rootmode=100666,user_id=0,group_id=0,allow_other";
  if (::mount("silent", "/mnt/silent", "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return none("mount fuse");
  made.state = static_cast<SilentFile::State*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  made.path = "/mnt/silent";
  made.server = ::fork();
  if (made.server == 0) serve(fuse.get(), made.state, reads);
  return made;
}

}  // namespace vrdma::hostile
