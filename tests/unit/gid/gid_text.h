// Conversions between GIDs and text.
#pragma once

#include <arpa/inet.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "core/verbs/gid.h"

namespace vrdma::gid {

// "fe80::1" or "10.0.0.1", the latter mapped.
inline verbs::Gid gid_of(const std::string& text) {
  verbs::Gid gid;
  const bool v4 = text.find(':') == std::string::npos;
  if (::inet_pton(AF_INET6, (v4 ? "::ffff:" + text : text).c_str(), gid.bytes.data()) != 1) abort();
  return gid;
}

inline std::vector<verbs::Gid> gids_of(std::initializer_list<const char*> texts) {
  std::vector<verbs::Gid> gids;
  for (const auto* text : texts) gids.push_back(gid_of(text));
  return gids;
}

inline std::vector<std::string> texts_of(const std::vector<verbs::Gid>& gids) {
  std::vector<std::string> texts;
  for (const auto& gid : gids) texts.push_back(gid.text());
  return texts;
}

}  // namespace vrdma::gid
