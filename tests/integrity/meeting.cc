#include "tests/integrity/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>

#include "tests/integrity/base.h"

namespace integrity {
namespace {

struct Hello {
  uint32_t number;
};
struct Given {  // member to server
  uint32_t epoch;
  uint32_t gives_up = 0;
  Info info;
};
enum : uint32_t { kGathered, kLost };
struct Taken {  // server to member
  uint32_t epoch;
  uint32_t what;
  uint32_t over;
  uint32_t members;
  Info infos[kMostMembers];
};

int open_socket(const std::string& path, sockaddr_un* at) {
  *at = {};
  at->sun_family = AF_UNIX;
  if (path.size() >= sizeof at->sun_path) fail("the socket's path is too long");
  std::memcpy(at->sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  return fd;
}

}  // namespace

Meeting::Meeting(const std::string& path, uint32_t number) {
  sockaddr_un at;
  fd_ = open_socket(path, &at);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    fail("no server at %s", path.c_str());
  const Hello hello{number};
  if (::send(fd_, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) fail("send");
  (void)hear();
}

Meeting::~Meeting() { ::close(fd_); }

std::vector<Info> Meeting::hear() {
  Taken taken{};
  if (::recv(fd_, &taken, sizeof taken, 0) != sizeof taken) fail("the server has gone");
  over_ = taken.over != 0;
  epoch_ = taken.epoch;
  if (taken.what == kLost) throw Lost();
  return {taken.infos, taken.infos + taken.members};
}

std::vector<Info> Meeting::gather(const Info& mine) {
  const Given given{epoch_, 0, mine};
  if (::send(fd_, &given, sizeof given, MSG_NOSIGNAL) != sizeof given) fail("the server has gone");
  return hear();
}

void Meeting::give_up() {
  const Given given{epoch_, 1, {}};
  if (::send(fd_, &given, sizeof given, MSG_NOSIGNAL) != sizeof given) fail("the server has gone");
  for (;;) look(1000);
}

void Meeting::look(int milliseconds) {
  pollfd one{fd_, POLLIN, 0};
  if (::poll(&one, 1, milliseconds) <= 0) return;
  (void)hear();
  fail("the server speaks without being asked");
}

namespace {

class Server {
 public:
  Server(const std::string& path, uint32_t members, uint32_t seconds)
      : members_(members), end_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)) {
    sockaddr_un at;
    listener_ = open_socket(path, &at);
    ::unlink(path.c_str());
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        ::chmod(path.c_str(), 0777) != 0 || ::listen(listener_, 16) != 0)
      fail("listen at %s", path.c_str());
    fds_.assign(members, -1);
    given_.resize(members);
    std::puts("ready");
    std::fflush(stdout);
  }

  int run() {
    for (;;) {
      std::vector<pollfd> all{{listener_, POLLIN, 0}};
      for (const int fd : fds_) all.push_back({fd, POLLIN, 0});
      if (::poll(all.data(), all.size(), -1) < 0) fail("poll");
      if (all[0].revents != 0) accept();
      for (uint32_t i = 0; i < members_; ++i)
        if (all[i + 1].fd >= 0 && all[i + 1].revents != 0) hear(i);
      if (began_ && over_ && joined() == 0) return 0;
    }
  }

 private:
  [[nodiscard]] uint32_t joined() const {
    uint32_t count = 0;
    for (const int fd : fds_) count += fd >= 0 ? 1 : 0;
    return count;
  }
  void accept() {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    Hello hello{};
    if (fd < 0) return;
    if (::recv(fd, &hello, sizeof hello, 0) != sizeof hello || hello.number >= members_ ||
        fds_[hello.number] >= 0) {
      ::close(fd);
      return;
    }
    fds_[hello.number] = fd;
    if (began_) {
      tell(hello.number, kGathered);
    } else if (joined() == members_) {
      began_ = true;
      for (uint32_t i = 0; i < members_; ++i) tell(i, kGathered);
    }
  }
  void hear(uint32_t member) {
    Given given{};
    if (::recv(fds_[member], &given, sizeof given, 0) != sizeof given) {
      leave(member);
      return;
    }
    if (given.epoch < epoch_) return;  // given before it knew that a member has died
    if (given.epoch > epoch_) {        // the next one began in good order
      epoch_ = given.epoch;
      for (auto& one : given_) one.reset();
    }
    if (given.gives_up != 0) {
      lose();
      return;
    }
    given_[member] = given.info;
    for (const auto& one : given_)
      if (!one) return;
    if (std::chrono::steady_clock::now() > end_) over_ = true;
    for (uint32_t i = 0; i < members_; ++i) tell(i, kGathered);
    for (auto& one : given_) one.reset();
  }
  void leave(uint32_t member) {
    ::close(fds_[member]);
    fds_[member] = -1;
    if (began_ && !over_) lose();
  }
  void lose() {
    epoch_ += 2;  // some may have begun the next one by themselves
    for (auto& one : given_) one.reset();
    for (uint32_t i = 0; i < members_; ++i)
      if (fds_[i] >= 0) tell(i, kLost);
  }
  void tell(uint32_t member, uint32_t what) {
    Taken taken{epoch_, what, over_ ? 1u : 0u, members_, {}};
    for (uint32_t i = 0; i < members_; ++i)
      if (given_[i]) taken.infos[i] = *given_[i];
    (void)::send(fds_[member], &taken, sizeof taken, MSG_NOSIGNAL);
  }

  const uint32_t members_;
  const std::chrono::steady_clock::time_point end_;
  int listener_;
  uint32_t epoch_ = 0;
  bool began_ = false, over_ = false;
  std::vector<int> fds_;
  std::vector<std::optional<Info>> given_;
};

}  // namespace

int serve(const std::string& path, uint32_t members, uint32_t seconds) {
  return Server(path, members, seconds).run();
}

}  // namespace integrity
