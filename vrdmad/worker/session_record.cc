// Sessions outlive the daemon: what is written down of each.
//
// Of each object that was made there are the request and its answer, of queue pairs their
// attributes and links besides; all of it before the program learns of it. Progress is where it
// always is, in the shared rings.
#include <cstring>

#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_records.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::Call;

namespace {

bool changes_nothing(Call call) {
  switch (call) {
    case Call::kProbe:
    case Call::kHello:
    case Call::kProve:
    case Call::kGoodbye:
    case Call::kQueryDevice:
    case Call::kQueryPort:
    case Call::kQueryGids:
    case Call::kQuerySrq:
    case Call::kQueryQp:
    case Call::kResume:
    case Call::kHold:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Session::will_serve(const ipc::Request& request) {
  if (file_ != nullptr && request.sequence != 0 && !changes_nothing(request.call))
    file_->set_begun(request.sequence);
}

void Session::keep(Stored kind, const ipc::Request& request, const ipc::Reply& reply,
                   uint32_t sequence) {
  const Sizes sizes = sizes_of(kind);
  uint8_t record[sizeof request.bytes + sizeof reply.bytes];
  std::memcpy(record, request.bytes, sizes.request);
  std::memcpy(record + sizes.request, reply.bytes, sizes.reply);
  file_->put(kind, reply.handle.handle, record, sizes.request + sizes.reply, sequence);
}

// A request was served: what has to be served again by another daemon is written down before the
// program learns of it.
void Session::remember(const ipc::Request& request, const ipc::Reply& reply) {
  if (file_ == nullptr || changes_nothing(request.call)) return;
  const uint32_t handle = request.handle.handle;
  switch (request.call) {
    case Call::kAllocPd:
      keep(Stored::kPd, request, reply, reply.sequence);
      break;
    case Call::kDeallocPd:
      file_->erase(Stored::kPd, handle);
      break;
    case Call::kRegMr:
      keep(Stored::kMr, request, reply, reply.sequence);
      break;
    case Call::kReregMr: {
      const rdma::Mr* mr = context_->mrs.find(request.rereg_mr.handle);
      ipc::Request as_made;
      ipc::Reply answer;
      as_made.reg_mr = request.rereg_mr.to;
      answer.reg_mr = {mr->handle, mr->key, mr->region.length};
      keep(Stored::kMr, as_made, answer);
      break;
    }
    case Call::kDeregMr:
      file_->erase(Stored::kMr, handle);
      break;
    case Call::kCreateChannel: {
      const uint32_t made = reply.create_channel.handle;
      const ChannelRecord record{made, 0, file_id(context_->channels.find(made)->write_end).inode};
      file_->put(Stored::kChannel, made, &record, sizeof record, reply.sequence);
      break;
    }
    case Call::kDestroyChannel:
      file_->erase(Stored::kChannel, handle);
      break;
    case Call::kCreateCq:
      keep(Stored::kCq, request, reply, reply.sequence);
      break;
    case Call::kResizeCq:
      keep(Stored::kCqSize, request, reply);
      break;
    case Call::kDestroyCq:
      file_->erase(Stored::kCqSize, handle);
      file_->erase(Stored::kCq, handle);
      break;
    case Call::kCreateAh:
      keep(Stored::kAh, request, reply, reply.sequence);
      break;
    case Call::kDestroyAh:
      file_->erase(Stored::kAh, handle);
      break;
    case Call::kCreateQp: {
      const auto type = static_cast<verbs::QpType>(request.create_qp.type);
      if (type != verbs::QpType::kRc && type != verbs::QpType::kUc && type != verbs::QpType::kUd)
        file_->forbid("it had XRC or raw packet queue pairs");
      keep(Stored::kQp, request, reply, reply.sequence);
      break;
    }
    case Call::kDestroyQp:
      file_->erase(Stored::kQpState, handle);
      file_->erase(Stored::kQp, handle);
      break;
    case Call::kModifyQp:  // on_qp_changed
    case Call::kAttachMcast:
    case Call::kDetachMcast:
      if (const rdma::Qp* qp = context_->qps.find(handle); qp != nullptr) keep_state(*qp);
      break;
    case Call::kCreateSrq:
      if (request.create_srq.xrcd != ipc::kNoObject) break;  // it has an XRC domain
      keep(Stored::kSrq, request, reply, reply.sequence);
      break;
    case Call::kModifySrq: {
      const SrqSizeRecord record{context_->srqs.find(handle)->max_wr};
      file_->put(Stored::kSrqSize, handle, &record, sizeof record);
      break;
    }
    case Call::kDestroySrq:
      file_->erase(Stored::kSrqSize, handle);
      file_->erase(Stored::kSrq, handle);
      break;
    case Call::kAllocMw:
      file_->forbid("it had memory windows");
      break;
    case Call::kOpenXrcd:
      file_->forbid("it had XRC domains");
      break;
    case Call::kImportDevice:
    case Call::kImportPd:
    case Call::kImportMr:
      file_->forbid("it imported objects");
      break;
    default:
      break;
  }
  if (reply.sequence != 0) file_->set_answered(reply);
}

void Session::keep_state(const rdma::Qp& qp) {
  if (file_ == nullptr || forced_ != nullptr || qp.handle == 0 || qp.domain != nullptr) return;
  QpRecord record{};
  record.attributes = qp.attributes;
  record.sgid = qp.sgid;
  record.outbox = qp.outbox != nullptr ? qp.outbox->range.offset() : 0;
  record.outbox_depth = qp.outbox != nullptr ? qp.outbox->depth : 0;
  record.peer_outbox = qp.peer_outbox_at;
  record.maps_peer = qp.maps_peer_id;
  record.linked_out = qp.out != nullptr ? 1 : 0;
  record.linked_in = qp.in != nullptr || qp.bereaved ? 1 : 0;
  record.out_used = qp.out_used ? 1 : 0;
  record.in_used = qp.in_used ? 1 : 0;
  record.link = qp.link;
  record.groups = static_cast<uint32_t>(qp.groups.size());
  std::vector<uint8_t> bytes(sizeof record + qp.groups.size() * sizeof(verbs::Gid));
  std::memcpy(bytes.data(), &record, sizeof record);
  if (!qp.groups.empty())
    std::memcpy(bytes.data() + sizeof record, qp.groups.data(), bytes.size() - sizeof record);
  file_->put(Stored::kQpState, qp.handle, bytes.data(), bytes.size());
}

// Before a worker holds it: so a receive is never lost with a worker, nor given to another message
// when it was completed. The rings that tell which are the program's and its peers'; what is
// written here they cannot change.
void Session::keep_claim(const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
  if (file_ == nullptr) return;
  if (receiver == nullptr) return file_->erase(Stored::kClaim, claim_number(srq, slot));
  const auto& theirs = receiver->peer_outbox;
  const ClaimRecord record{receiver->handle, ipc::head_of(*receiver->inbox, receiver->inbox_depth),
                           theirs != nullptr ? ipc::head_of(*theirs->ring, theirs->depth) : 0};
  file_->put(Stored::kClaim, claim_number(srq, slot), &record, sizeof record);
}

void Session::write_down_changes() {
  context_->on_qp_changed = [this](const rdma::Qp& qp) { keep_state(qp); };
  context_->on_claim = [this](const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
    keep_claim(srq, slot, receiver);
  };
}

// The session is open: from here on it is written down.
void Session::begin_file() {
  if (settings_.state_dir.empty()) return;
  auto made =
      SessionFile::create(settings_.state_dir + "/" + std::to_string(context_->id) + ".session");
  if (!made) return;  // nobody will take it over
  file_ = std::move(*made);
  Who who{};
  vdevice_->device.name.copy(who.vdevice, sizeof who.vdevice - 1);
  who.node_guid = vdevice_->device.node_guid;
  who.netns = vdevice_->netns;
  who.process = context_->process->peer();
  who.session = context_->id;
  who.epoch = context_->epoch;
  who.arena = arena_id_;
  who.bells = file_id(context_->bell_fd);
  who.memory = memory_id_;
  who.doorbell = eventfd_id(doorbell_);
  who.events = file_id(context_->events).inode;
  file_->put(Stored::kWho, 0, &who, sizeof who);
  write_down_changes();
}

}  // namespace vrdma::vrdmad
