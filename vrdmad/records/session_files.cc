#include "vrdmad/records/session_files.h"

#include <utility>

namespace vrdma::vrdmad {

namespace {

base::Result<SessionFiles> both(base::Result<std::unique_ptr<AnchorFile>> anchors,
                                base::Result<std::unique_ptr<SessionFile>> journal) {
  if (!journal) return base::pass(std::move(journal).error());
  if (!anchors) return base::pass(std::move(anchors).error());
  return SessionFiles{std::move(*anchors), std::move(*journal)};
}

}  // namespace

base::Result<SessionFiles> SessionFiles::create(const std::string& directory,
                                                const Anchor& anchor) {
  auto anchors = AnchorFile::create(anchors_path(directory, anchor.session), anchor);
  if (!anchors) return base::pass(std::move(anchors).error());
  return both(std::move(anchors), SessionFile::create(journal_path(directory, anchor.session)));
}

base::Result<SessionFiles> SessionFiles::open(const std::string& directory, uint32_t number) {
  auto files = both(AnchorFile::open(anchors_path(directory, number)),
                    SessionFile::open(journal_path(directory, number)));
  // A worker wrote the anchors, but control named the files.
  if (files && files->anchors->anchors().of.session != number)
    return base::fail(EINVAL, "its anchors name another session");
  return files;
}

base::Result<SessionFiles> SessionFiles::open(base::Fd anchors, base::Fd journal) {
  return both(AnchorFile::open(std::move(anchors)), SessionFile::open(std::move(journal)));
}

}  // namespace vrdma::vrdmad
