#include "cli/doctor/library.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/exec.h"

namespace vrdma::cli::doctor {

namespace {

const char* const kPrivate = "IBVERBS_PRIVATE_";

// Reads the value at `offset` of `bytes`; false: beyond the end.
template <class T>
bool read_at(const std::string& bytes, uint64_t offset, T* value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof *value) return false;
  std::memcpy(value, bytes.data() + offset, sizeof *value);
  return true;
}

std::string text_at(const std::string& bytes, const Elf64_Shdr& strings, uint32_t name) {
  const uint64_t begin = strings.sh_offset + name;
  if (name >= strings.sh_size || begin >= bytes.size()) return {};
  const size_t most = std::min<uint64_t>(strings.sh_size - name, bytes.size() - begin);
  return {bytes.data() + begin, ::strnlen(bytes.data() + begin, most)};
}

}  // namespace

std::vector<std::string> version_nodes(const std::string& elf) {
  constexpr int kMost = 4096;  // bounds a ring in a damaged file
  std::vector<std::string> nodes;
  Elf64_Ehdr header{};
  if (!read_at(elf, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return nodes;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section{}, strings{};
    if (!read_at(elf, header.e_shoff + uint64_t{i} * sizeof section, &section)) break;
    if (section.sh_type != SHT_GNU_verdef || section.sh_link >= header.e_shnum) continue;
    if (!read_at(elf, header.e_shoff + uint64_t{section.sh_link} * sizeof strings, &strings)) break;
    uint64_t offset = section.sh_offset;
    for (int count = 0; count < kMost; ++count) {
      Elf64_Verdef node{};
      Elf64_Verdaux name{};
      if (!read_at(elf, offset, &node) || !read_at(elf, offset + node.vd_aux, &name)) break;
      // The base entry is the library's own name.
      if ((node.vd_flags & VER_FLG_BASE) == 0)
        nodes.push_back(text_at(elf, strings, name.vda_name));
      if (node.vd_next == 0) break;
      offset += node.vd_next;
    }
  }
  return nodes;
}

// The name of a variable that no other library reads.
bool is_drop_in(const std::string& content) {
  return content.find("VRDMA_RUN_DIR") != std::string::npos;
}

std::string describe_nodes(const std::vector<std::string>& nodes) {
  std::string last, privates;
  int highest = -1;
  for (const auto& node : nodes) {
    if (node.rfind(kPrivate, 0) == 0) {
      privates += (privates.empty() ? "" : ", ") + node;
    } else if (node.rfind("IBVERBS_1.", 0) == 0) {
      const int minor = std::atoi(node.c_str() + std::strlen("IBVERBS_1."));
      if (minor > highest) {
        highest = minor;
        last = node;
      }
    }
  }
  return "public nodes to " + (last.empty() ? "none" : last) + ", private " +
         (privates.empty() ? "none" : privates);
}

std::vector<std::string> mapped_libraries(const std::string& maps) {
  std::set<std::string> paths;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::string path = line.substr(begin);
    // Also matches copies in wheels: libibverbs-1de1263b.so.1.14.48.0.
    if (path.find("/libibverbs") != std::string::npos && path.find(".so") != std::string::npos)
      paths.insert(path);
  }
  return {paths.begin(), paths.end()};
}

Trace parse_trace(const std::string& text) {
  Trace trace;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("not found") != std::string::npos ||
        line.find("undefined symbol") != std::string::npos) {
      trace.complaints.push_back(line.substr(std::min(line.find_first_not_of(" \t"), line.size())));
      continue;
    }
    const size_t arrow = line.find(" => /");
    if (line.find("libibverbs.so.1 ") == std::string::npos || arrow == std::string::npos) continue;
    trace.library = line.substr(arrow + 4);
    trace.library = trace.library.substr(0, trace.library.find(" (0x"));
  }
  return trace;
}

Finding judge_library(const std::string& path, const std::string& content, const std::string& how) {
  if (content.empty())
    return {"library", State::kUnknown, how + ": " + path + ", which cannot be read here", ""};
  const std::string nodes = describe_nodes(version_nodes(content));
  if (is_drop_in(content))
    return {"library", State::kOk, how + ": " + path + " (" + nodes + ")", ""};
  const auto own = library_dir();
  return {
      "library", State::kProblem,
      how + ": " + path + ", which is not vrdma's and does not support vdevices (" + nodes + ")",
      "start the program by 'vrdmactl exec', or with LD_LIBRARY_PATH=" +
          (own ? *own : std::string("the directory of vrdma's libraries")) +
          (path.find(".libs/") != std::string::npos || path.find("libibverbs-") != std::string::npos
               ? " and without its bundled copy"
               : "")};
}

}  // namespace vrdma::cli::doctor
