#include "vrdmad/records/cm_session_image.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

#include "core/verbs/gid.h"
#include "qp1mux/record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

namespace {

constexpr uint64_t kImageMagic = 0x76726d63696d6731;
// Must change with the layout of any record, including the structs of core/ipc and qp1mux in it.
constexpr uint32_t kVersion = 1;
constexpr size_t kAnswerBytes = offsetof(ipc::CmReply, attributes);
constexpr uint32_t kLastEvent = static_cast<uint32_t>(qp1mux::CmEventType::kTimewaitExit);

enum class Part : uint32_t { kChannel, kId, kEvent, kVdevice, kLastAnswer };

struct Header {
  uint64_t magic = kImageMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  uint64_t checksum = 0;  // of all that follows
  std::array<uint64_t, ipc::kCmSecret / sizeof(uint64_t)> secret{};
  CmSessionFile::Numbers numbers;
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<Header>);
constexpr size_t kSummed = offsetof(Header, secret);  // from here on

struct RecordHeader {
  uint32_t kind = 0;
  uint32_t number = 0;
  uint32_t size = 0;  // of the data
  uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 16);

struct VdeviceData {
  CmSessionFile::VdeviceRecord is;
  char name[64];  // with a zero
};

constexpr size_t whole_words(size_t size) { return (size + 7) / 8 * 8; }

// FNV-1a. Any change of one byte changes it.
uint64_t checksum_of(std::span<const uint8_t> bytes) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3;
  return sum;
}

template <class T>
bool read(std::span<const uint8_t> data, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (data.size() != sizeof *out) return false;
  std::memcpy(static_cast<void*>(out), data.data(), sizeof *out);
  return true;
}

void add(std::vector<uint8_t>* bytes, Part kind, uint32_t number, const void* data, size_t size) {
  const RecordHeader header{static_cast<uint32_t>(kind), number, static_cast<uint32_t>(size), 0};
  const auto* const head = reinterpret_cast<const uint8_t*>(&header);
  const auto* const from = static_cast<const uint8_t*>(data);
  bytes->insert(bytes->end(), head, head + sizeof header);
  bytes->insert(bytes->end(), from, from + size);
  bytes->resize(whole_words(bytes->size()));
}

// Of a vdevice or none: the pointer itself means nothing elsewhere.
qp1mux::Endpoint* some_endpoint() { return reinterpret_cast<qp1mux::Endpoint*>(1); }

// Who listens does so where its port is bound.
bool fits(const qp1mux::CmIdRecord& id, const qp1mux::PortRequest& bound) {
  return bound.port != 0 && bound.port == id.local.port && bound.space == id.space &&
         (id.state != qp1mux::CmIdState::kListening || bound.address == id.local.gid);
}

bool is_sound(const CmSessionImage::Id& id) {
  const CmSessionFile::IdRecord& record = id.record;
  if (!qp1mux::is_sound(record.id) || record.backlog > CmSessionImage::kMostBacklog ||
      record.id.backlog > CmSessionImage::kMostBacklog || id.sgid_index >= verbs::kMaxGids)
    return false;
  const bool has_vdevice = record.id.route.endpoint != nullptr;
  return has_vdevice == (record.node_guid != 0) &&
         (has_vdevice || record.id.connection.state == qp1mux::State::kClosed) &&
         (!record.id.is_bound || fits(record.id, record.id.bound));
}

bool is_sound(const ipc::CmEventMessage& event) {
  return event.sequence != 0 && event.size == sizeof event &&
         (event.type <= kLastEvent || event.type == ipc::kCmNudge) &&
         event.param.length <= ipc::kCmPrivateData;
}

bool decode_vdevice(std::span<const uint8_t> data, CmSessionImage* image) {
  VdeviceData from{};
  if (!read(data, &from) || from.name[sizeof from.name - 1] != 0 || from.is.known_as == 0 ||
      from.is.node_guid == 0 || image->vdevices.size() == CmSessionImage::kMostVdevices)
    return false;
  image->vdevices.push_back({from.is, from.name});
  return true;
}

bool decode_record(const RecordHeader& header, std::span<const uint8_t> data,
                   CmSessionImage* image) {
  switch (static_cast<Part>(header.kind)) {
    case Part::kChannel:
      image->channels.push_back(header.number);
      return data.empty() && header.number != 0 && (header.number & ipc::kCmOwnHandle) == 0;
    case Part::kId: {
      const auto [it, is_new] = image->ids.try_emplace(header.number);
      return is_new && header.number != 0 && read(data, &it->second) && is_sound(it->second);
    }
    case Part::kEvent:
      return read(data, &image->events.emplace_back()) && is_sound(image->events.back()) &&
             image->events.back().sequence == header.number;
    case Part::kVdevice:
      return decode_vdevice(data, image);
    case Part::kLastAnswer:
      if (data.size() != kAnswerBytes || header.number != 0) return false;
      std::memcpy(static_cast<void*>(&image->answer), data.data(), kAnswerBytes);
      return image->answer.magic == ipc::kCmMagic && image->answer.size == sizeof image->answer;
  }
  return false;
}

template <class T, class Key>
bool are_distinct(const std::vector<T>& all, const Key& key) {
  std::set<decltype(key(all.front()))> seen;
  return std::all_of(all.begin(), all.end(),
                     [&](const T& one) { return seen.insert(key(one)).second; });
}

bool is_consistent(const CmSessionImage& image) {
  const auto knows = [&image](uint64_t guid) {
    return std::any_of(image.vdevices.begin(), image.vdevices.end(),
                       [guid](const auto& one) { return one.is.node_guid == guid; });
  };
  return are_distinct(image.channels, [](uint32_t handle) { return handle; }) &&
         are_distinct(image.events, [](const auto& event) { return event.sequence; }) &&
         are_distinct(image.vdevices, [](const auto& one) { return one.is.known_as; }) &&
         are_distinct(image.vdevices, [](const auto& one) { return one.is.node_guid; }) &&
         std::none_of(image.channels.begin(), image.channels.end(),
                      [&](uint32_t handle) { return image.ids.contains(handle); }) &&
         std::all_of(image.ids.begin(), image.ids.end(), [&](const auto& id) {
           return id.second.record.node_guid == 0 || knows(id.second.record.node_guid);
         });
}

}  // namespace

Result<CmSessionImage> CmSessionImage::of(CmSessionFile& file) {
  const auto who = file.who();
  if (!who) return base::pass(who.error());
  CmSessionImage image;
  image.secret = who->secret;
  image.numbers = file.numbers();
  for (const auto& [handle, socket] : file.channels()) image.channels.push_back(handle);
  for (const auto& [handle, record] : file.ids()) {
    Id& id = image.ids[handle];
    id.record = record;
    if (record.id.route.endpoint != nullptr) id.record.id.route.endpoint = some_endpoint();
  }
  image.events = file.events();
  for (const auto& known : file.vdevices()) image.vdevices.push_back({known, {}});
  image.answer = file.answer();
  return image;
}

Result<CmSessionImage> CmSessionImage::decode(std::span<const uint8_t> bytes) {
  const auto damaged = fail(EINVAL, "its state of rdma_cm is damaged");
  Header head;
  if (bytes.size() > kMostBytes || bytes.size() < sizeof head ||
      !read(bytes.first(sizeof head), &head) || head.magic != kImageMagic)
    return damaged;
  if (head.version != kVersion)
    return fail(EPROTO, "its state of rdma_cm is of another version of vrdmad");
  if (head.reserved != 0 || head.checksum != checksum_of(bytes.subspan(kSummed))) return damaged;
  CmSessionImage image;
  image.secret = head.secret;
  image.numbers = head.numbers;
  for (bytes = bytes.subspan(sizeof head); !bytes.empty();) {
    RecordHeader header;
    if (bytes.size() < sizeof header || !read(bytes.first(sizeof header), &header)) return damaged;
    bytes = bytes.subspan(sizeof header);
    if (bytes.size() < whole_words(header.size) ||
        !decode_record(header, bytes.first(header.size), &image))
      return damaged;
    bytes = bytes.subspan(whole_words(header.size));
  }
  if (!is_consistent(image)) return damaged;
  return image;
}

std::vector<uint8_t> CmSessionImage::encode() const {
  Header head;
  head.secret = secret;
  head.numbers = numbers;
  std::vector<uint8_t> bytes(sizeof head);
  for (const uint32_t handle : channels) add(&bytes, Part::kChannel, handle, nullptr, 0);
  for (const auto& [handle, id] : ids) add(&bytes, Part::kId, handle, &id, sizeof id);
  for (const auto& event : events) add(&bytes, Part::kEvent, event.sequence, &event, sizeof event);
  for (const Vdevice& one : vdevices) {
    VdeviceData data{};
    data.is = one.is;
    one.name.copy(data.name, sizeof data.name - 1);
    add(&bytes, Part::kVdevice, 0, &data, sizeof data);
  }
  if (answer.sequence != 0) add(&bytes, Part::kLastAnswer, 0, &answer, kAnswerBytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  head.checksum = checksum_of(std::span(bytes).subspan(kSummed));
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

void CmSessionImage::write_to(CmSessionFile* file) const {
  file->numbers() = numbers;
  for (const uint32_t handle : channels) file->put_channel(handle, 0);
  for (const auto& [handle, id] : ids) file->put_id(handle, id.record);
  for (const auto& event : events) file->put_event(event);
  for (uint32_t number = 0; const Vdevice& one : vdevices) file->put_vdevice(++number, one.is);
  if (answer.sequence != 0) file->put_answer(answer);
  file->commit();
}

}  // namespace vrdma::vrdmad
