#include "vrdmad/records/session_image.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

namespace {

constexpr uint64_t kImageMagic = 0x76726d61696d6731;
// Must change with the layout of any record, including the structs of core/ipc and core/rdma in it.
constexpr uint32_t kVersion = 2;
// Of a kind in a session: as many as there can be keys.
constexpr uint32_t kMaxHandle = ipc::kMaxKeys;
constexpr uint32_t kMaxGroups = 1024;
constexpr size_t kMaxNote = 256;  // bytes

struct Header {
  uint64_t magic = kImageMagic;
  uint32_t version = kVersion;
  uint32_t begun = 0;
  ipc::Reply reply;
};
static_assert(sizeof(Header) % 8 == 0 && std::is_trivially_copyable_v<Header>);

struct RecordHeader {
  uint16_t kind = 0;
  uint16_t answered = 0;
  uint32_t number = 0;
  uint32_t size = 0;  // of the data
  uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 16);

constexpr size_t whole_words(size_t size) { return (size + 7) / 8 * 8; }

template <class T>
std::span<const uint8_t> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

template <class T>
bool read(std::span<const uint8_t> data, T* out) {
  if (data.size() != sizeof *out) return false;
  std::memcpy(static_cast<void*>(out), data.data(), sizeof *out);
  return true;
}

// Handles of queues are also slots of the shared memory.
bool is_handle_of(Stored kind, uint32_t number) {
  switch (kind) {
    case Stored::kCq:
    case Stored::kCqSize:
      return number >= 1 && number <= ipc::kMaxCqSlots;
    case Stored::kQp:
      return number >= 1 && number <= ipc::kMaxQpSlots;
    case Stored::kSrq:  // see claim_number()
      return number >= 1 && number < UINT32_MAX / ipc::kMaxQueueDepth;
    default:
      return number >= 1 && number <= kMaxHandle;
  }
}
bool is_handle(uint32_t number) { return number >= 1 && number <= kMaxHandle; }
bool is_handle_or_none(uint32_t number) { return number <= kMaxHandle; }
bool is_qpn(uint32_t qpn) { return qpn <= verbs::kQpnMask && !rdma::is_special_qpn(qpn); }
bool is_key(uint32_t key) { return ipc::slot_of(key) != 0; }
bool is_flag(uint32_t value) { return value <= 1; }

// What the reply gives the object, beside its handle. Offsets are checked by the heaps.
bool has_valid_numbers(Stored kind, const SessionImage::Served& made) {
  const auto& reply = made.reply;
  switch (kind) {
    case Stored::kMr:
      return is_key(reply.reg_mr.key);
    case Stored::kMw:
      return is_key(reply.alloc_mw.key);
    case Stored::kCqSize:
      return made.request.resize_cq.handle == reply.create_cq.handle;
    case Stored::kSrq:
      return made.request.create_srq.xrcd == ipc::kNoObject
                 ? reply.create_srq.srqn == 0
                 : reply.create_srq.srqn != 0 && reply.create_srq.srqn <= verbs::kQpnMask;
    case Stored::kQp: {
      const uint32_t type = made.request.create_qp.type;
      constexpr uint32_t kGsiQpn = 1;
      return type != static_cast<uint32_t>(verbs::QpType::kXrcTarget) &&
             (type == static_cast<uint32_t>(verbs::QpType::kGsi) ? reply.create_qp.qpn == kGsiQpn
                                                                 : is_qpn(reply.create_qp.qpn));
    }
    default:
      return true;
  }
}

// What a program can set; it may set any access and any flag.
bool are_valid(const verbs::QpAttributes& attributes) {
  return attributes.state <= static_cast<uint32_t>(verbs::QpState::kErr) &&
         attributes.path_mtu <= 5 && attributes.rq_psn <= verbs::kPsnMask &&
         attributes.sq_psn <= verbs::kPsnMask && attributes.dest_qpn <= verbs::kQpnMask &&
         attributes.pkey_index == 0 && attributes.max_rd_atomic <= ipc::kMaxRdAtomic &&
         attributes.max_dest_rd_atomic <= ipc::kMaxRdAtomic && attributes.min_rnr_timer <= 31 &&
         attributes.port_num <= 1 && attributes.timeout <= 31 && attributes.retry_cnt <= 7 &&
         attributes.rnr_retry <= 7 && is_flag(attributes.sq_draining) &&
         attributes.path_mig_state == 0;
}

bool decode_state(std::span<const uint8_t> data, SessionImage::QpState* state) {
  QpRecord& record = state->record;
  if (data.size() < sizeof record || !read(data.first(sizeof record), &record)) return false;
  const auto groups = data.subspan(sizeof record);
  if (record.groups > kMaxGroups || groups.size() != record.groups * sizeof(verbs::Gid))
    return false;
  state->groups.resize(record.groups);
  if (!groups.empty()) std::memcpy(state->groups.data(), groups.data(), groups.size());
  return are_valid(record.attributes) && is_flag(record.linked_out) && is_flag(record.linked_in) &&
         is_flag(record.out_made) && is_flag(record.in_made) && is_flag(record.remote) &&
         (record.outbox == 0 || (std::has_single_bit(record.outbox_depth) &&
                                 record.outbox_depth <= ipc::kMaxQueueDepth)) &&
         std::all_of(state->groups.begin(), state->groups.end(),
                     [](const verbs::Gid& group) { return group.is_multicast(); });
}

bool decode_served(Stored kind, uint32_t number, std::span<const uint8_t> data,
                   SessionImage::Served* made) {
  const auto shape = shape_of(kind);
  if (!shape || data.size() != shape->request + shape->reply) return false;
  made->request.call = shape->call;
  if (shape->request > 0) std::memcpy(made->request.bytes, data.data(), shape->request);
  std::memcpy(made->reply.bytes, data.data() + shape->request, shape->reply);
  return is_handle_of(kind, number) && made->reply.handle.handle == number &&
         has_valid_numbers(kind, *made);
}

// Adds the object `number`, which there is once. nullptr: there is another.
template <class T>
T* add(SessionImage::Objects<T>* objects, uint32_t number, bool answered) {
  const auto [it, fresh] = objects->try_emplace(number);
  it->second.answered = answered;
  return fresh ? &it->second.made : nullptr;
}

template <class T, class Check>
bool add(SessionImage::Objects<T>* objects, const RecordHeader& header,
         std::span<const uint8_t> data, Check is_valid) {
  T* const made = add(objects, header.number, header.answered != 0);
  return made != nullptr && read(data, made) && is_valid(*made);
}

bool decode_record(const RecordHeader& header, std::span<const uint8_t> data, SessionImage* image) {
  const auto kind = static_cast<Stored>(header.kind);
  const uint32_t number = header.number;
  switch (kind) {
    case Stored::kExporter:
      return number == 0 && add(&image->exporter, header, data,
                                [](const auto& record) { return record.context != 0; });
    case Stored::kImportedPd:
      return is_handle(number) && add(&image->imported_pds, header, data, [](const auto& record) {
               return record.origin.context != 0 && is_handle(record.origin.handle);
             });
    case Stored::kImportedMr:
      return is_handle(number) && add(&image->imported_mrs, header, data, [](const auto& record) {
               return is_key(record.key) && is_handle(record.pd) && record.origin.context != 0 &&
                      is_handle(record.origin.handle);
             });
    case Stored::kXrcd:
      return is_handle(number) && add(&image->xrcds, header, data,
                                      [](const auto& record) { return is_flag(record.named); });
    case Stored::kChannel:
      return is_handle(number) && data.empty() &&
             add(&image->channels, number, header.answered != 0) != nullptr;
    case Stored::kTarget:
      return (number & ipc::kTargetHandle) != 0 && is_handle(number & ~ipc::kTargetHandle) &&
             add(&image->targets, header, data,
                 [](const auto& record) { return is_handle(record.xrcd) && is_qpn(record.qpn); });
    case Stored::kSrqSize:
      return is_handle(number) && add(&image->srq_sizes, header, data, [](const auto& record) {
               return record.max_wr >= 1 && record.max_wr <= ipc::kMaxQueueDepth;
             });
    case Stored::kQpState: {
      SessionImage::QpState* const state = add(&image->qp_states, number, header.answered != 0);
      return state != nullptr && is_handle(number & ~ipc::kTargetHandle) &&
             decode_state(data, state);
    }
    case Stored::kBinding:
      return is_handle(number) && add(&image->bindings, header, data, [](const auto& record) {
               return is_key(record.key) && is_handle_or_none(record.mr) &&
                      is_handle_or_none(record.qp);
             });
    case Stored::kClaim:
      return is_handle(number >> 15) && add(&image->claims, header, data, [](const auto& record) {
               return is_handle_or_none(record.qp);
             });
    case Stored::kNote: {
      const uint32_t qp = number / rdma::Notes::kMost;
      std::vector<uint8_t>* const note = add(&image->notes, number, header.answered != 0);
      if (note == nullptr || qp < 1 || qp > ipc::kMaxQpSlots || data.size() > kMaxNote)
        return false;
      note->assign(data.begin(), data.end());
      return true;
    }
    default: {
      if (header.kind > static_cast<uint16_t>(kLastStored)) return false;
      SessionImage::Served* const made = add(&image->served[kind], number, header.answered != 0);
      return made != nullptr && decode_served(kind, number, data, made);
    }
  }
}

template <class T, class U>
bool are_disjoint(const SessionImage::Objects<T>& some, const SessionImage::Objects<U>& others) {
  return std::none_of(others.begin(), others.end(),
                      [&](const auto& other) { return some.contains(other.first); });
}

}  // namespace

std::optional<ServedShape> shape_of(Stored kind) {
  using ipc::Call;
  constexpr size_t kHandle = sizeof(ipc::HandleReply);
  switch (kind) {
    case Stored::kPd:
      return ServedShape{Call::kAllocPd, 0, kHandle};
    case Stored::kCq:
      return ServedShape{Call::kCreateCq, sizeof(ipc::CreateCqRequest), sizeof(ipc::CreateCqReply)};
    case Stored::kCqSize:
      return ServedShape{Call::kResizeCq, sizeof(ipc::ResizeCqRequest), sizeof(ipc::CreateCqReply)};
    case Stored::kAh:
      return ServedShape{Call::kCreateAh, sizeof(verbs::AddressVector), kHandle};
    case Stored::kMr:
      return ServedShape{Call::kRegMr, sizeof(ipc::RegMrRequest), sizeof(ipc::RegMrReply)};
    case Stored::kMw:
      return ServedShape{Call::kAllocMw, sizeof(ipc::AllocMwRequest), sizeof(ipc::AllocMwReply)};
    case Stored::kSrq:
      return ServedShape{Call::kCreateSrq, sizeof(ipc::CreateSrqRequest),
                         sizeof(ipc::CreateSrqReply)};
    case Stored::kQp:
      return ServedShape{Call::kCreateQp, sizeof(ipc::CreateQpRequest), sizeof(ipc::CreateQpReply)};
    case Stored::kFlow:
      return ServedShape{Call::kCreateFlow, sizeof(ipc::CreateFlowRequest), kHandle};
    default:
      return {};
  }
}

ImageBytes::ImageBytes(uint32_t begun, const ipc::Reply& reply) {
  Header header;
  header.begun = begun;
  header.reply = reply;
  const auto bytes = bytes_of(header);
  bytes_.assign(bytes.begin(), bytes.end());
}

void ImageBytes::add(Stored kind, uint32_t number, bool answered, std::span<const uint8_t> data) {
  const RecordHeader header{static_cast<uint16_t>(kind), static_cast<uint16_t>(answered ? 1 : 0),
                            number, static_cast<uint32_t>(data.size()), 0};
  const auto bytes = bytes_of(header);
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.insert(bytes_.end(), data.begin(), data.end());
  bytes_.resize(whole_words(bytes_.size()));
}

void each_record(std::span<const uint8_t> image, const EachRecord& record) {
  for (auto bytes = image.subspan(sizeof(Header)); !bytes.empty();) {
    RecordHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = bytes.subspan(sizeof header);
    record(static_cast<Stored>(header.kind), header.number, header.answered != 0,
           bytes.first(header.size));
    bytes = bytes.subspan(whole_words(header.size));
  }
}

Result<SessionImage> SessionImage::decode(std::span<const uint8_t> bytes) {
  const auto damaged = fail(EINVAL, "its state is damaged");
  Header head;
  if (bytes.size() < sizeof head || !read(bytes.first(sizeof head), &head) ||
      head.magic != kImageMagic)
    return damaged;
  if (head.version != kVersion) return fail(EPROTO, "its state is of another version of vrdmad");
  SessionImage image;
  image.begun = head.begun;
  image.reply = head.reply;
  for (bytes = bytes.subspan(sizeof head); !bytes.empty();) {
    RecordHeader header;
    if (bytes.size() < sizeof header || !read(bytes.first(sizeof header), &header)) return damaged;
    bytes = bytes.subspan(sizeof header);
    if (bytes.size() < whole_words(header.size) || !is_flag(header.answered) ||
        !decode_record(header, bytes.first(header.size), &image))
      return damaged;
    bytes = bytes.subspan(whole_words(header.size));
  }
  if (!are_disjoint(image.served[Stored::kPd], image.imported_pds) ||
      !are_disjoint(image.served[Stored::kMr], image.imported_mrs))
    return damaged;
  std::erase_if(image.served, [](const auto& kind) { return kind.second.empty(); });
  return image;
}

std::vector<uint8_t> SessionImage::encode() const {
  ImageBytes bytes(begun, reply);
  const auto put = [&bytes](Stored kind, const auto& objects) {
    for (const auto& [number, object] : objects)
      bytes.add(kind, number, object.answered, bytes_of(object.made));
  };
  for (const auto& [kind, objects] : served) {
    const ServedShape shape = *shape_of(kind);
    for (const auto& [number, object] : objects) {
      std::vector<uint8_t> data(shape.request + shape.reply);
      std::copy_n(object.made.request.bytes, shape.request, data.begin());
      std::copy_n(object.made.reply.bytes, shape.reply,
                  data.begin() + static_cast<std::ptrdiff_t>(shape.request));
      bytes.add(kind, number, object.answered, data);
    }
  }
  put(Stored::kExporter, exporter);
  put(Stored::kImportedPd, imported_pds);
  put(Stored::kImportedMr, imported_mrs);
  put(Stored::kXrcd, xrcds);
  for (const auto& [number, object] : channels)
    bytes.add(Stored::kChannel, number, object.answered, {});
  put(Stored::kTarget, targets);
  put(Stored::kSrqSize, srq_sizes);
  for (const auto& [number, object] : qp_states) {
    const QpState& state = object.made;
    const auto record = bytes_of(state.record);
    std::vector<uint8_t> data(record.begin(), record.end());
    for (const verbs::Gid& group : state.groups) {
      const auto group_bytes = bytes_of(group);
      data.insert(data.end(), group_bytes.begin(), group_bytes.end());
    }
    bytes.add(Stored::kQpState, number, object.answered, data);
  }
  put(Stored::kBinding, bindings);
  put(Stored::kClaim, claims);
  for (const auto& [number, object] : notes)
    bytes.add(Stored::kNote, number, object.answered, object.made);
  return bytes.take();
}

}  // namespace vrdma::vrdmad
