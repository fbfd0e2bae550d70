#include "pvrdma/vfio_user/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace vrdma::pvrdma {

using namespace vfio;

namespace {

// In a pass of the loop, so that a VMM that sends without end does not keep the rest waiting.
constexpr int kMessagesPerPass = 64;
// The answer must not be longer than what the VMM proposed, which QEMU's is not shorter than.
constexpr std::string_view kCapabilities =
    R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":32768}})";
constexpr uint64_t kGuestPage = 4096;

bool is_known(uint16_t message) {
  return message >= static_cast<uint16_t>(Message::kVersion) &&
         message <= static_cast<uint16_t>(Message::kFeature);
}

}  // namespace

VfioServer::VfioServer(Function& function, base::Fd connection,
                       std::function<void(const std::string&)> ended)
    : function_(function), connection_(std::move(connection)), ended_(std::move(ended)) {}

base::Result<std::unique_ptr<VfioServer>> VfioServer::serve(
    base::EventLoop& loop, base::Fd connection, Function& function,
    std::function<void(const std::string&)> ended) {
  const int fd = connection.get();
  std::unique_ptr<VfioServer> server(
      new VfioServer(function, std::move(connection), std::move(ended)));
  VfioServer* const self = server.get();
  auto watch = loop.watch(fd, EPOLLIN, [self](uint32_t events) { self->on_ready(events); });
  if (!watch) return base::pass(std::move(watch.error()));
  server->loop_ = &loop;
  server->watch_ = std::move(*watch);
  return server;
}

void VfioServer::end(const std::string& why) {
  watch_.reset();
  const auto ended = std::exchange(ended_, nullptr);
  if (ended) ended(why);
}

// --- receiving ---

void VfioServer::on_ready(uint32_t) {
  for (int i = 0; i < kMessagesPerPass; ++i) {
    const Progress progress = receive();
    if (progress != Progress::kMessage) return;
    dispatch();
    if (!ended_) return;
  }
}

void VfioServer::take_descriptors(const msghdr& message) {
  for (const cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr;
       one = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(one))) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(one) + i * sizeof fd, sizeof fd);
      descriptors_.emplace_back(fd);
    }
  }
}

// Reads the header, and then the rest, so that descriptors stay with the message that they came
// with.
VfioServer::Progress VfioServer::receive() {
  if (received_ == 0) {
    descriptors_.clear();
    payload_.clear();
  }
  for (;;) {
    const bool in_header = received_ < sizeof header_;
    uint8_t* const to = in_header ? reinterpret_cast<uint8_t*>(&header_) + received_
                                  : payload_.data() + (received_ - sizeof header_);
    const size_t left = in_header ? sizeof header_ - received_ : header_.size - received_;
    if (left == 0) break;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
    iovec part{to, left};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kWaits;
    if (count <= 0) {
      end(count == 0 && received_ == 0 ? "" : "the VMM has closed the connection in a message");
      return Progress::kEnded;
    }
    take_descriptors(message);
    if ((message.msg_flags & MSG_CTRUNC) != 0 || descriptors_.size() > kMostFds) {
      end("the VMM sends more than " + std::to_string(kMostFds) + " descriptors in a message");
      return Progress::kEnded;
    }
    received_ += static_cast<size_t>(count);
    if (!in_header || received_ < sizeof header_) continue;
    if (header_.size < sizeof header_ || header_.size > kMostBytes ||
        (header_.flags & kTypeMask) != kCommandType || !is_known(header_.message)) {
      end("the VMM sends what is no message of vfio-user");
      return Progress::kEnded;
    }
    payload_.resize(header_.size - sizeof header_);
  }
  received_ = 0;
  return Progress::kMessage;
}

// --- answering ---

template <class Struct>
bool VfioServer::read(Struct* to, size_t at) const {
  if (at > payload_.size() || sizeof(Struct) > payload_.size() - at) return false;
  std::memcpy(to, payload_.data() + at, sizeof(Struct));
  return true;
}

template <class Struct>
void VfioServer::append(const Struct& one) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&one);
  answer_.insert(answer_.end(), bytes, bytes + sizeof one);
}

void VfioServer::dispatch() {
  const auto message = static_cast<Message>(header_.message);
  if (!negotiated_ && message != Message::kVersion) {
    end("the VMM does not begin with its version");
    return;
  }
  answer_.clear();
  answer_file_ = nullptr;
  const int error = execute(message);
  if ((header_.flags & kNoReply) == 0 && !send_answer(error)) {
    end("the VMM has closed the connection, or does not read its answers");
    return;
  }
  descriptors_.clear();
  function_.answered();
}

int VfioServer::execute(Message message) {
  switch (message) {
    case Message::kVersion:
      return version();
    case Message::kDmaMap:
      return map();
    case Message::kDmaUnmap:
      return unmap();
    case Message::kDeviceInfo:
      append(DeviceInfo{sizeof(DeviceInfo), kCanReset | kIsPci, kRegions, kInterruptTypes});
      return 0;
    case Message::kRegionInfo:
      return region_info();
    case Message::kIrqInfo:
      return irq_info();
    case Message::kSetIrqs:
      return set_irqs();
    case Message::kRegionRead:
      return read_region();
    case Message::kRegionWrite:
      return write_region();
    case Message::kRegionWriteMulti:
      return write_regions();
    case Message::kReset:
      function_.reset();
      return 0;
    default:  // among them features: the device cannot migrate
      return ENOTSUP;
  }
}

int VfioServer::version() {
  Version theirs{};
  if (!read(&theirs)) return EINVAL;
  if (theirs.major != 0) return ENOTSUP;
  negotiated_ = true;
  append(Version{0, 0});
  // Without capabilities, those of the specification are meant.
  const size_t room = payload_.size() - sizeof(Version);
  if (room > kCapabilities.size()) {
    answer_.insert(answer_.end(), kCapabilities.begin(), kCapabilities.end());
    answer_.push_back(0);
  }
  return 0;
}

int VfioServer::map() {
  DmaMap wish{};
  if (!read(&wish)) return EINVAL;
  if (wish.size == 0 || (wish.address | wish.size | wish.offset) % kGuestPage != 0 ||
      wish.address + wish.size < wish.address || wish.offset + wish.size < wish.offset ||
      wish.offset > INT64_MAX || descriptors_.size() > 1)
    return EINVAL;
  base::Fd file = descriptors_.empty() ? base::Fd() : std::move(descriptors_.front());
  return function_.map({wish.address, wish.size, wish.offset, (wish.flags & kMayRead) != 0,
                        (wish.flags & kMayWrite) != 0},
                       std::move(file));
}

int VfioServer::unmap() {
  DmaUnmap wish{};
  if (!read(&wish)) return EINVAL;
  if ((wish.flags & kUnmapAll) != 0) {
    function_.unmap_all();
  } else if (const int error = function_.unmap(wish.address, wish.size); error != 0) {
    return error;
  }
  append(wish);
  return 0;
}

// A VMM asks with room for the struct alone first, and learns how much there is.
int VfioServer::region_info() {
  RegionInfo info{};
  if (!read(&info)) return EINVAL;
  if (info.index >= kRegions) return EINVAL;
  const RegionShape shape = function_.region(info.index);
  const uint32_t room = info.argsz;
  info = {sizeof info, shape.size != 0 ? kCanRead | kCanWrite : 0, info.index, 0, shape.size, 0};
  if (shape.mappable.length == 0) {
    append(info);
    return 0;
  }
  info.argsz = sizeof info + sizeof(SparseMap);
  info.flags |= kCanMap | kHasCapability;
  info.capability = sizeof info;
  append(info);
  if (room >= info.argsz)
    append(SparseMap{1, 1, 0, 1, 0, shape.mappable.offset, shape.mappable.length});
  answer_file_ = shape.mappable.file;
  return 0;
}

int VfioServer::irq_info() {
  IrqInfo info{};
  if (!read(&info)) return EINVAL;
  if (info.index >= kInterruptTypes) return EINVAL;
  const bool is_msix = info.index == kMsix;
  append(IrqInfo{sizeof info, is_msix ? kEventfds | kFixedCount : 0, info.index,
                 is_msix ? function_.vectors() : 0});
  return 0;
}

int VfioServer::set_irqs() {
  SetIrqs wish{};
  if (!read(&wish)) return EINVAL;
  const uint32_t vectors = wish.index == kMsix ? function_.vectors() : 0;
  if (wish.index >= kInterruptTypes || wish.start > vectors || wish.count > vectors - wish.start)
    return EINVAL;
  if ((wish.flags & kTrigger) == 0) return 0;  // a mask: the VMM keeps it
  if ((wish.flags & kDataNone) != 0 && wish.count == 0) {
    for (uint32_t i = 0; i < vectors; ++i) function_.set_vector(i, {});
    return 0;
  }
  if ((wish.flags & kDataEventfd) == 0) return ENOTSUP;  // a trigger by hand
  if (!descriptors_.empty() && descriptors_.size() != wish.count) return EINVAL;
  for (uint32_t i = 0; i < wish.count; ++i)
    function_.set_vector(wish.start + i,
                         descriptors_.empty() ? base::Fd() : std::move(descriptors_[i]));
  return 0;
}

bool VfioServer::permits(uint32_t region, uint64_t offset, uint64_t count) const {
  if (region >= kRegions || count == 0 || count > kMostAccess) return false;
  const uint64_t size = function_.region(region).size;
  return offset <= size && count <= size - offset;
}

int VfioServer::read_region() {
  RegionAccess access{};
  if (!read(&access)) return EINVAL;
  if (!permits(access.region, access.offset, access.count)) return EINVAL;
  append(access);
  answer_.resize(sizeof access + access.count);
  function_.read(access.region, access.offset, std::span(answer_).subspan(sizeof access));
  return 0;
}

int VfioServer::write_region() {
  RegionAccess access{};
  if (!read(&access)) return EINVAL;
  if (!permits(access.region, access.offset, access.count) ||
      payload_.size() - sizeof access < access.count)
    return EINVAL;
  append(access);
  function_.write(access.region, access.offset,
                  std::span<const uint8_t>(payload_).subspan(sizeof access, access.count));
  return 0;
}

int VfioServer::write_regions() {
  uint64_t count = 0;
  if (!read(&count)) return EINVAL;
  if (count > (payload_.size() - sizeof count) / sizeof(PostedWrite)) return EINVAL;
  for (uint64_t i = 0; i < count; ++i) {
    PostedWrite write{};
    if (!read(&write, sizeof count + i * sizeof write) ||
        !permits(write.region, write.offset, write.count))
      return EINVAL;
    function_.write(write.region, write.offset,
                    std::span<const uint8_t>(write.bytes).first(write.count));
  }
  append(count);
  return 0;
}

bool VfioServer::send_answer(int error) {
  if (error != 0) {
    answer_.clear();
    answer_file_ = nullptr;
  }
  const Header header{header_.id, header_.message,
                      static_cast<uint32_t>(sizeof(Header) + answer_.size()),
                      kReplyType | (error != 0 ? kError : 0), static_cast<uint32_t>(error)};
  std::vector<uint8_t> all(sizeof header + answer_.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::ranges::copy(answer_, all.begin() + sizeof header);
  iovec part{all.data(), all.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (answer_file_ != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const one = CMSG_FIRSTHDR(&message);
    one->cmsg_level = SOL_SOCKET;
    one->cmsg_type = SCM_RIGHTS;
    one->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = answer_file_->get();
    std::memcpy(CMSG_DATA(one), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  // Answers are short, and a VMM waits for most of them: one that leaves no room does not read
  // them.
  return sent == static_cast<ssize_t>(all.size());
}

}  // namespace vrdma::pvrdma
