#include "vrdmad/records/session_files.h"

#include <utility>

namespace vrdma::vrdmad {

base::Result<SessionFiles> SessionFiles::create(const std::string& directory,
                                                const Anchor& anchor) {
  auto anchors = AnchorFile::create(anchors_path(directory, anchor.session), anchor);
  if (!anchors) return base::pass(std::move(anchors).error());
  auto journal = SessionFile::create(journal_path(directory, anchor.session));
  if (!journal) return base::pass(std::move(journal).error());
  return SessionFiles{std::move(*anchors), std::move(*journal)};
}

base::Result<SessionFiles> SessionFiles::open(const std::string& directory, uint32_t number) {
  auto journal = SessionFile::open(journal_path(directory, number));
  if (!journal) return base::pass(std::move(journal).error());
  auto anchors = AnchorFile::open(anchors_path(directory, number));
  if (!anchors) return base::pass(std::move(anchors).error());
  return SessionFiles{std::move(*anchors), std::move(*journal)};
}

}  // namespace vrdma::vrdmad
