// The two files of a session: its anchors and the journal of its image.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "vrdmad/records/anchor_file.h"
#include "vrdmad/records/session_file.h"

namespace vrdma::vrdmad {

struct SessionFiles {
  // In this order, so that the anchors are removed last.
  std::unique_ptr<AnchorFile> anchors;
  std::unique_ptr<SessionFile> journal;

  static constexpr const char* kJournal = ".session";
  static constexpr const char* kAnchors = ".anchors";

  [[nodiscard]] static std::string journal_path(const std::string& directory, uint32_t number) {
    return directory + "/" + std::to_string(number) + kJournal;
  }
  [[nodiscard]] static std::string anchors_path(const std::string& directory, uint32_t number) {
    return directory + "/" + std::to_string(number) + kAnchors;
  }
  // `number`: anchor.session.
  [[nodiscard]] static base::Result<SessionFiles> create(const std::string& directory,
                                                         const Anchor& anchor);
  // Keeps both.
  [[nodiscard]] static base::Result<SessionFiles> open(const std::string& directory,
                                                       uint32_t number);
  // Of files that another process has opened.
  [[nodiscard]] static base::Result<SessionFiles> open(base::Fd anchors, base::Fd journal);
  void keep(bool kept = true) {
    anchors->keep(kept);
    journal->keep(kept);
  }
};

}  // namespace vrdma::vrdmad
