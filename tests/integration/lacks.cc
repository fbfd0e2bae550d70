// lacks DEVICE files|space: lacks descriptors or address space in the middle of each verbs call.
// What cannot be had must fail with an errno, leave nothing open or mapped, and succeed as soon as
// there is enough again.
//
// Prints each kind of failure once. Exits with 1 and a sentence if a call fails without an errno,
// leaves something, or goes on failing.
#include <dirent.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int kMostSpare = 24;                   // descriptors, more than any call takes
constexpr size_t kPiece = 64u << 10;             // of address space
constexpr size_t kMostSpace = size_t{24} << 30;  // more than any call takes
constexpr size_t kMemory = 4u << 20;
constexpr unsigned kPatience = 30;  // seconds: then it hangs

bool by_files;
std::set<std::string> failures;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

int open_files() {
  DIR* const all = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

// Of /proc/self/statm, in pages.
size_t address_space() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  size_t pages = 0;
  if (std::fscanf(file, "%zu", &pages) != 1) fail("read /proc/self/statm");
  std::fclose(file);
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// While there is one, this process gets only so much more.
class Lack {
 public:
  explicit Lack(size_t spare) {
    resource_ = by_files ? RLIMIT_NOFILE : RLIMIT_AS;
    ::getrlimit(resource_, &before_);
    rlimit now = before_;
    // Descriptors are numbered without gaps here: see main().
    now.rlim_cur =
        by_files ? static_cast<size_t>(open_files() - 3) + spare : address_space() + spare;
    if (::setrlimit(resource_, &now) != 0) fail("set a limit");
  }
  Lack(const Lack&) = delete;
  Lack& operator=(const Lack&) = delete;
  ~Lack() { ::setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

// Repeats `make` with ever more to spare until it succeeds. The last object stays.
template <class T>
T* made(const char* what, const std::function<T*()>& make) {
  for (size_t spare = 0; spare <= (by_files ? kMostSpare : kMostSpace); spare = by_files ? spare + 1
                                                                                : spare == 0
                                                                                    ? kPiece
                                                                                    : spare * 2) {
    int files = 0;
    for (const bool again : {false, true}) {  // the library may keep something of the first attempt
      T* object = nullptr;
      int error = 0;
      {
        const Lack lack(spare);
        errno = 0;
        object = make();
        error = errno;
      }
      if (object != nullptr) return object;
      if (error == 0) fail(std::string(what) + " fails without an errno");
      if (error != (by_files ? EMFILE : ENOMEM))
        fail(std::string(what) + " fails with " + std::strerror(error));
      failures.insert(std::string(what) + ": " + std::strerror(error));
      if (again && open_files() != files) fail(std::string(what) + " leaves descriptors open");
      files = open_files();
    }
  }
  fail(std::string(what) + " fails with enough to spare");
}

void gone(const char* what, int result) {
  if (result != 0) fail(std::string(what) + ": " + std::strerror(result > 0 ? result : errno));
}

void use_verbs(const char* name) {
  ibv_device** const list = made<ibv_device*>("list", [] { return ibv_get_device_list(nullptr); });
  // A list that was made with too little lacks the vdevice; the library has said why.
  ibv_device** const all = ibv_get_device_list(nullptr);
  ibv_device* device = nullptr;
  for (ibv_device** each = all; *each != nullptr; ++each)
    if (std::strcmp(ibv_get_device_name(*each), name) == 0) device = *each;
  if (device == nullptr) fail("there is no device of that name");
  auto* const context = made<ibv_context>("open", [&] { return ibv_open_device(device); });
  auto* const channel =
      made<ibv_comp_channel>("channel", [&] { return ibv_create_comp_channel(context); });
  auto* const pd = made<ibv_pd>("pd", [&] { return ibv_alloc_pd(context); });
  auto* const cq =
      made<ibv_cq>("cq", [&] { return ibv_create_cq(context, 16, nullptr, channel, 0); });
  ibv_srq_init_attr srq_init{};
  srq_init.attr = {16, 1, 0};
  auto* const srq = made<ibv_srq>("srq", [&] { return ibv_create_srq(pd, &srq_init); });
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1024, 1024, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  auto* const qp = made<ibv_qp>("qp", [&] { return ibv_create_qp(pd, &init); });
  void* const memory =
      ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 7, kMemory);
  auto* const mr =
      made<ibv_mr>("mr", [&] { return ibv_reg_mr(pd, memory, kMemory, IBV_ACCESS_LOCAL_WRITE); });
  for (size_t i = 0; i < kMemory; ++i)
    if (static_cast<char*>(memory)[i] != 7) fail("registered memory has changed");
  auto* const again = made<ibv_context>("open again", [&] { return ibv_open_device(device); });
  gone("close", ibv_close_device(again));
  gone("mr", ibv_dereg_mr(mr));
  gone("qp", ibv_destroy_qp(qp));
  gone("srq", ibv_destroy_srq(srq));
  gone("cq", ibv_destroy_cq(cq));
  gone("pd", ibv_dealloc_pd(pd));
  gone("channel", ibv_destroy_comp_channel(channel));
  gone("close", ibv_close_device(context));
  ::munmap(memory, kMemory);
  ibv_free_device_list(all);
  ibv_free_device_list(list);
}

// In a process of its own: the first registration has so much to spare, the second one enough. Both
// ranges end.
void register_first(const char* name, size_t spare) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kPatience);
    ibv_device** const all = ibv_get_device_list(nullptr);
    ibv_device* device = nullptr;
    for (ibv_device** each = all; *each != nullptr; ++each)
      if (std::strcmp(ibv_get_device_name(*each), name) == 0) device = *each;
    ibv_context* const context = device != nullptr ? ibv_open_device(device) : nullptr;
    ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
    if (pd == nullptr) fail("the device cannot be used");
    for (const bool enough : {false, true, true}) {
      void* const memory =
          ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ibv_mr* mr = nullptr;
      if (enough) {
        mr = ibv_reg_mr(pd, memory, kMemory, IBV_ACCESS_LOCAL_WRITE);
      } else {
        const Lack lack(spare);
        mr = ibv_reg_mr(pd, memory, kMemory, IBV_ACCESS_LOCAL_WRITE);
      }
      if (mr == nullptr && enough) fail("memory cannot be registered");
      if (mr != nullptr) gone("mr", ibv_dereg_mr(mr));
      ::munmap(memory, kMemory);
    }
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0)
    fail("with " + std::to_string(spare) + " to spare at the first registration it ends with " +
         std::to_string(status));
}

void use_cm() {
  auto* const channel =
      made<rdma_event_channel>("event channel", [] { return rdma_create_event_channel(); });
  auto* const id = made<rdma_cm_id>("id", [&]() -> rdma_cm_id* {
    rdma_cm_id* one = nullptr;
    return rdma_create_id(channel, &one, nullptr, RDMA_PS_TCP) == 0 ? one : nullptr;
  });
  gone("id", rdma_destroy_id(id));
  rdma_destroy_event_channel(channel);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  by_files = std::strcmp(argv[2], "files") == 0;
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);  // no gaps below those that follow
  for (size_t spare = 0; spare <= (by_files ? kMostSpare : 64 * kPiece);
       spare += by_files ? 1 : kPiece / 2)
    register_first(argv[1], spare);
  int files = 0;
  for (int pass = 0; pass < 3; ++pass) {
    use_cm();
    use_verbs(argv[1]);
    if (pass > 0 && open_files() > files) fail("descriptors are left open");
    files = open_files();
  }
  for (const auto& each : failures) std::puts(each.c_str());
  return failures.size() < 2 ? (std::puts("too little fails"), 1) : 0;
}
