#include "pvrdma/vfio_user/server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/log.h"

namespace vrdma::pvrdma {

using namespace vfio;  // NOLINT(google-build-using-namespace): the messages of this file

namespace {

// In a pass of the loop, so that a VMM that sends without end, or a byte at a time, does not keep
// the rest waiting. A message is looked at twice.
constexpr int kReadsPerPass = 128;
// QEMU takes no answer that is longer than what it proposed, and proposes 198 bytes.
constexpr std::string_view kCapabilities =
    R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":256,"write_multiple":true}})";
static_assert(kMostFds == 8 && kMostAccess == 256);
constexpr uint64_t kGuestPage = 4096;

bool is_access(Message message) {
  return message == Message::kRegionRead || message == Message::kRegionWrite ||
         message == Message::kRegionWriteMulti;
}

// Whole pages, and the end is an address too.
bool is_range(uint64_t address, uint64_t length) {
  return length != 0 && (address | length) % kGuestPage == 0 && address <= UINT64_MAX - length;
}

}  // namespace

VfioServer::VfioServer(base::EventLoop& loop, Function& function, Progress& progress,
                       base::Fd connection, std::function<void(const std::string&)> ended)
    : loop_(loop),
      function_(function),
      progress_(progress),
      connection_(std::move(connection)),
      ended_(std::move(ended)) {}

base::Result<std::unique_ptr<VfioServer>> VfioServer::serve(
    base::EventLoop& loop, base::Fd connection, Function& function, Progress& progress,
    std::function<void(const std::string&)> ended) {
  std::unique_ptr<VfioServer> server(
      new VfioServer(loop, function, progress, std::move(connection), std::move(ended)));
  if (auto done = server->resume(); !done) return base::pass(std::move(done.error()));
  if (auto done = server->watch(); !done) return base::pass(std::move(done.error()));
  return server;
}

base::Result<void> VfioServer::resume() {
  const uint64_t noted = progress_.noted;
  Progress::Noted& last = progress_.of(noted);
  negotiated_ = noted > progress_.cleared && last.negotiated;
  if (progress_.begun > noted && ++progress_.deaths >= Progress::kMostDeaths) refuses_ = true;
  if (progress_.answered >= noted) return {};
  const Header header = last.header;
  const bool had_left = last.taken == last.last;
  if (!had_left) {
    if (header.size < sizeof header || header.size > kMostBytes || !connection_.begins_with(header))
      return base::fail(EPROTO, "the image of the device does not fit the VMM's connection");
    if (auto done = connection_.take(header.size, &last.taken); !done) return done;
  }
  if (last.length != 0) {
    const base::Fd* file = nullptr;
    if (had_left && last.length > sizeof(Header)) {  // and its answer, perhaps
      const Header unknown{header.id, header.message, sizeof unknown, kReplyType | kError, EIO};
      answer_.assign(sizeof unknown, 0);
      std::memcpy(answer_.data(), &unknown, sizeof unknown);
    } else {
      answer_.assign(last.answer.begin(),
                     last.answer.begin() + std::min<ptrdiff_t>(last.length, Progress::kMostAnswer));
      if (last.file != 0 && last.file <= kRegions)
        file = function_.region(last.file - 1).mappable.file;
    }
    if (auto sent = connection_.send(answer_, file); !sent) return sent;
  }
  settle();
  return {};
}

base::Result<void> VfioServer::watch() {
  watch_.reset();
  watches_room_ = connection_.has_unsent();
  // For edges, because a message in pieces stays in the socket.
  auto watch = loop_.watch(connection_.fd(), EPOLLET | EPOLLIN | (watches_room_ ? EPOLLOUT : 0u),
                           [this](uint32_t) { on_ready(); });
  if (!watch) return base::pass(std::move(watch.error()));
  watch_ = std::move(*watch);
  return {};
}

void VfioServer::end(const std::string& why) {
  watch_.reset();
  again_.reset();
  connection_.descriptors().clear();
  std::exchange(ended_, nullptr)(why);
}

void VfioServer::settle() {
  if (!connection_.has_unsent()) progress_.answered.store(progress_.noted);
}

void VfioServer::on_ready() {
  base::Result<void> done;
  if (connection_.has_unsent()) {
    done = connection_.flush();
    settle();
  }
  int reads = kReadsPerPass;
  while (done) {
    const auto more = serve_one(reads);
    if (!more) done = base::pass(more.error());
    if (!more || !*more) break;
  }
  if (done && connection_.has_unsent() != watches_room_) done = watch();
  if (!done)
    end(done.error().message());
  else if (reads <= 0)
    again_ = loop_.after({}, [this] { on_ready(); });
}

base::Result<bool> VfioServer::serve_one(int& reads) {
  if (connection_.has_unsent()) return false;
  if (auto complete = connection_.receive(reads); !complete || !*complete) return complete;
  const Header header = connection_.request().header;
  const auto message = static_cast<Message>(header.message);
  if (!negotiated_ && message != Message::kVersion)
    return base::fail(EPROTO,
                      "the VMM begins with " + name_of(header.message) + " instead of VERSION");
  answer_.assign(sizeof header, 0);
  answer_file_ = 0;
  progress_.begin();
  const int error = std::exchange(refuses_, false) ? refuse(header) : execute(message);
  const Header reply{header.id, header.message, static_cast<uint32_t>(answer_.size()),
                     kReplyType | (error != 0 ? kError : 0), static_cast<uint32_t>(error)};
  std::memcpy(answer_.data(), &reply, sizeof reply);
  if ((header.flags & kNoReply) != 0) answer_.clear();
  const uint32_t file = answer_.empty() ? 0 : answer_file_;
  function_.before_note();
  progress_.note(header, connection_.last_byte(), negotiated_, answer_, file);
  function_.noted();
  if (auto taken = connection_.take(header.size, &progress_.of(progress_.noted).taken); !taken)
    return base::pass(std::move(taken.error()));
  if (!answer_.empty()) {
    const base::Fd* const with = file != 0 ? function_.region(file - 1).mappable.file : nullptr;
    if (auto sent = connection_.send(answer_, with); !sent)
      return base::pass(std::move(sent.error()));
  }
  settle();
  if (error == 0 && is_access(message)) function_.answered();
  return true;
}

int VfioServer::refuse(const Header& header) const {
  base::log_warning("a " + name_of(header.message) + " of the VMM is refused: " +
                    std::to_string(Progress::kMostDeaths) + " processes died of it");
  return EIO;
}

// --- answering ---

template <class Struct>
bool VfioServer::read(Struct* to, size_t at) const {
  const std::vector<uint8_t>& payload = connection_.request().payload;
  if (at > payload.size() || sizeof(Struct) > payload.size() - at) return false;
  std::memcpy(to, payload.data() + at, sizeof(Struct));
  return true;
}

template <class Struct>
bool VfioServer::read_sized(Struct* to) const {
  return read(to) && to->argsz >= sizeof(Struct);
}

template <class Struct>
void VfioServer::append(const Struct& part) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&part);
  answer_.insert(answer_.end(), bytes, bytes + sizeof part);
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
      return device_info();
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
    case Message::kRegionIoFds:  // its answer would have to bring a descriptor
    case Message::kFeature:      // the device cannot migrate
    case Message::kMigrationRead:
    case Message::kMigrationWrite:
    case Message::kDmaRead:  // for a VMM to answer
    case Message::kDmaWrite:
      break;
  }
  return ENOTSUP;
}

int VfioServer::version() {
  Version theirs{};
  const std::vector<uint8_t>& payload = connection_.request().payload;
  if (!read(&theirs) || negotiated_) return EINVAL;
  const size_t room = payload.size() - sizeof theirs;  // the text, with its NUL
  if (room != 0 && payload.back() != 0) return EINVAL;
  if (theirs.major != 0) return ENOTSUP;
  negotiated_ = true;
  append(Version{0, 0});
  if (room > kCapabilities.size()) {
    answer_.insert(answer_.end(), kCapabilities.begin(), kCapabilities.end());
    answer_.push_back(0);
  }
  return 0;
}

int VfioServer::map() {
  DmaMap wish{};
  std::vector<base::Fd>& descriptors = connection_.descriptors();
  if (!read_sized(&wish) || (wish.flags & ~(kMayRead | kMayWrite)) != 0 ||
      !is_range(wish.address, wish.size) || wish.offset % kGuestPage != 0 ||
      wish.size > INT64_MAX || wish.offset > INT64_MAX - wish.size || descriptors.size() > 1)
    return EINVAL;
  base::Fd file = descriptors.empty() ? base::Fd() : std::move(descriptors.front());
  return function_.map({wish.address, wish.size, wish.offset, (wish.flags & kMayRead) != 0,
                        (wish.flags & kMayWrite) != 0},
                       std::move(file));
}

int VfioServer::unmap() {
  DmaUnmap wish{};
  if (!read_sized(&wish) || (wish.flags & ~kUnmapAll) != 0) return EINVAL;
  if (wish.flags == kUnmapAll) {
    if (wish.address != 0 || wish.size != 0) return EINVAL;
    function_.unmap_all();
  } else if (!is_range(wish.address, wish.size)) {
    return EINVAL;
  } else if (const int error = function_.unmap(wish.address, wish.size); error != 0) {
    return error;
  }
  append(wish);
  return 0;
}

int VfioServer::device_info() {
  DeviceInfo info{};
  if (!read_sized(&info)) return EINVAL;
  append(DeviceInfo{sizeof info, kCanReset | kIsPci, kRegions, kInterruptTypes});
  return 0;
}

// A VMM asks with room for the struct alone first, and learns from argsz how much there is. Both
// answers are alike otherwise: QEMU wants the file with each, and takes no capability flag whose
// offset lies outside of argsz.
int VfioServer::region_info() {
  RegionInfo info{};
  if (!read_sized(&info) || info.index >= kRegions) return EINVAL;
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
  answer_file_ = info.index + 1;
  return 0;
}

int VfioServer::irq_info() {
  IrqInfo info{};
  if (!read_sized(&info) || info.index >= kInterruptTypes) return EINVAL;
  const bool is_msix = info.index == kMsix;
  append(IrqInfo{sizeof info, is_msix ? kEventfds | kFixedCount : 0, info.index,
                 is_msix ? function_.vectors() : 0});
  return 0;
}

// Where vectors go. They cannot be masked, as irq_info() says; a VMM that masks one takes its
// eventfd away.
int VfioServer::set_irqs() {
  SetIrqs wish{};
  if (!read_sized(&wish) || wish.index >= kInterruptTypes) return EINVAL;
  constexpr uint32_t kData = kDataNone | kDataBool | kDataEventfd;
  constexpr uint32_t kActions = kMask | kUnmask | kTrigger;
  const uint32_t vectors = wish.index == kMsix ? function_.vectors() : 0;
  if ((wish.flags & ~(kData | kActions)) != 0 || !std::has_single_bit(wish.flags & kData) ||
      !std::has_single_bit(wish.flags & kActions) || wish.start > vectors ||
      wish.count > vectors - wish.start)
    return EINVAL;
  if (wish.flags == (kDataNone | kTrigger) && wish.count == 0) {
    for (uint32_t i = 0; i < vectors; ++i) function_.set_vector(i, {});
    return 0;
  }
  if (wish.flags != (kDataEventfd | kTrigger)) return ENOTSUP;
  std::vector<base::Fd>& descriptors = connection_.descriptors();
  if (!descriptors.empty() && descriptors.size() != wish.count) return EINVAL;
  for (uint32_t i = 0; i < wish.count; ++i)
    function_.set_vector(wish.start + i,
                         descriptors.empty() ? base::Fd() : std::move(descriptors[i]));
  return 0;
}

bool VfioServer::permits(uint32_t region, uint64_t offset, uint64_t count) const {
  if (region >= kRegions || count == 0 || count > kMostAccess) return false;
  const uint64_t size = function_.region(region).size;
  return offset <= size && count <= size - offset;
}

int VfioServer::read_region() {
  RegionAccess access{};
  if (!read(&access) || !permits(access.region, access.offset, access.count)) return EINVAL;
  append(access);
  const size_t at = answer_.size();
  answer_.resize(at + access.count);
  function_.read(access.region, access.offset, std::span(answer_).subspan(at));
  return 0;
}

int VfioServer::write_region() {
  RegionAccess access{};
  if (!read(&access) || !permits(access.region, access.offset, access.count)) return EINVAL;
  const std::span<const uint8_t> bytes =
      std::span<const uint8_t>(connection_.request().payload).subspan(sizeof access);
  if (bytes.size() != access.count) return EINVAL;
  append(access);
  function_.write(access.region, access.offset, bytes);
  return 0;
}

// All of them, or none. QEMU sends the message at its full length, whatever it holds.
int VfioServer::write_regions() {
  uint64_t count = 0;
  if (!read(&count)) return EINVAL;
  if (count > (connection_.request().payload.size() - sizeof count) / sizeof(PostedWrite))
    return EINVAL;
  std::vector<PostedWrite> writes(count);
  for (uint64_t i = 0; i < count; ++i) {
    PostedWrite& write = writes[i];
    if (!read(&write, sizeof count + i * sizeof write) || write.count > sizeof write.bytes ||
        !permits(write.region, write.offset, write.count))
      return EINVAL;
  }
  for (const PostedWrite& write : writes)
    function_.write(write.region, write.offset, std::span(write.bytes).first(write.count));
  append(count);
  return 0;
}

}  // namespace vrdma::pvrdma
