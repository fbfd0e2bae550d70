// Memory that lies in files of others than the program, and that it shows (core/ipc/page_table.h).
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

// Peers on direct links look for memory in place in the arena of its process alone, so one that may
// have such peers cannot show any. Files of huge pages are refused because to map one takes a lock
// that its owner may hold for long.
int SessionObjects::show_memory(const ipc::ShowMemoryRequest& request, const Fds& fds,
                                Answer* answer) {
  if (context_->process->peer().dumpable != 0) return EPERM;
  for (const rdma::Context* other : vdevice_->device.contexts)
    if (other != context_.get() && other->process->space()->shows()) return EBUSY;
  const Shown::Memory memory = fds.all_memory();
  if (request.files != memory.files.size()) return EBADF;
  std::vector<ShownFile> files;
  for (const intake::Verdict& verdict : memory.verdicts) {
    if (verdict.error != 0 || verdict.device != arena_id_.device) return EINVAL;
    files.push_back({{verdict.device, verdict.inode}, verdict.size});
  }
  if (!files.empty() && files[0].size != ipc::kPageTableSize) return EINVAL;
  const int error = show(
      std::move(files), [&](size_t i) -> const auto& { return memory.files[i]; });
  if (error == 0) answer_when_unreached(answer);
  return error;
}

// Control has found the files that an earlier worker had accepted.
int SessionObjects::show_again(const SessionKit& kit) {
  std::vector<ShownFile> files;
  for (const SessionKit::Shown& one : kit.shown) files.push_back(one.is);
  return show(
      std::move(files), [&](size_t i) -> const auto& { return kit.shown[i].file; });
}

int SessionObjects::show(std::vector<ShownFile> files,
                         const std::function<const base::Fd&(size_t)>& file) {
  std::vector<rdma::AddressSpace::File> pages;
  for (size_t i = 1; i < files.size(); ++i) pages.push_back({&file(i), files[i].size});
  const base::Fd* const table = files.empty() ? nullptr : &file(0);
  if (table != nullptr || context_->process->space()->shows())
    if (auto shown = context_->process->space()->show(table, pages); !shown)
      return shown.error().code();
  shown_ = std::move(files);
  return 0;
}

}  // namespace vrdma::vrdmad
