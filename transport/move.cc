#include "transport/move.h"

#include <algorithm>
#include <optional>

namespace vrdma::transport {

std::vector<rdma::Reach::Part> move_in_place(const rdma::PieceList& pieces,
                                             const rdma::Process& worker, bool write,
                                             uint8_t* bytes, uint64_t offset) {
  std::vector<rdma::Reach::Part> left;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    uint8_t* const at = bytes + offset;
    bool moved = false;
    if (piece.reached || !HoleGuard::run([&] {
          moved = write ? rdma::write_piece(at, piece) : rdma::read_piece(piece, at);
        }) ||
        !moved)
      left.push_back(rdma::part_of(piece, offset, worker));
    offset += piece.length;
  }
  return left;
}

uint64_t end_of(const rdma::PieceList& target, uint64_t size) {
  if (target.count == 0) return 0;
  const rdma::Piece& last = target.pieces[target.count - 1];
  return std::min(size, (last.addr + last.length - 1) % sizeof(uint64_t) + 1);
}

namespace {

// In the last piece of what is stored; none: it is reached, so a thread stores there, and looks.
std::optional<uint64_t> what_stands(const rdma::PieceList& pieces) {
  rdma::Piece last = pieces.pieces[pieces.count - 1];
  if (last.reached) return std::nullopt;
  uint64_t stands = 0;  // as on a page that is missing
  const uint64_t length = std::min<uint64_t>(end_of(pieces, last.length), sizeof stands);
  last.addr += last.length - length;
  last.length = length;
  (void)HoleGuard::run([&] { (void)rdma::read_piece(last, reinterpret_cast<uint8_t*>(&stands)); });
  return stands;
}

}  // namespace

std::function<void(bool ok)> while_arriving(rdma::Qp& qp, std::function<void(bool ok)> done) {
  return [arrival = qp.arrival(), done = std::move(done)](bool ok) { done(ok); };
}

bool move(const rdma::PieceList& pieces, rdma::Process& worker, rdma::Qp* written,
          const rdma::Buffer& buffer, uint64_t offset, std::shared_ptr<base::CpuMeter> payer,
          std::function<void(bool ok)> done, rdma::Reach::Marker mark) {
  rdma::Reach::Job job;
  job.write = written != nullptr;
  const auto stood = mark ? what_stands(pieces) : std::nullopt;
  if (mark) mark(stood ? ipc::Mark::kBegun : ipc::Mark::kNone, stood.value_or(0));
  job.parts = move_in_place(pieces, worker, job.write, buffer->data(), offset);
  if (stood) mark(job.parts.empty() ? ipc::Mark::kDone : ipc::Mark::kNone, *stood);
  if (job.parts.empty()) return true;
  job.mark = std::move(mark);
  job.buffer = buffer;
  job.payer = std::move(payer);
  job.done = job.write ? while_arriving(*written, std::move(done)) : std::move(done);
  worker.reach()->submit(std::move(job));
  return false;
}

}  // namespace vrdma::transport
