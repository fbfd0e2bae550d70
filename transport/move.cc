#include "transport/move.h"

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

bool move(const rdma::PieceList& pieces, rdma::Process& worker, bool write,
          const rdma::Buffer& buffer, uint64_t offset, std::shared_ptr<base::CpuMeter> payer,
          std::function<void(bool ok)> done) {
  rdma::Reach::Job job;
  job.parts = move_in_place(pieces, worker, write, buffer->data(), offset);
  if (job.parts.empty()) return true;
  job.write = write;
  job.buffer = buffer;
  job.payer = std::move(payer);
  job.done = std::move(done);
  worker.reach()->submit(std::move(job));
  return false;
}

}  // namespace vrdma::transport
