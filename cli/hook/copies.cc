#include "cli/hook/copies.h"

#include <elf.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <cstring>
#include <set>

#include "core/base/loader_directories.h"

namespace vrdma::cli::hook {

namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

// Directories with a library under its own name, beside those of the loader. The most frequent
// places are first.
constexpr const char* kDirectories[] = {
    "/usr/local/lib", "/usr/local/lib64",  ("/usr/local/lib/" VRDMA_MULTIARCH),
    "/opt/*/lib",  // /opt/conda/lib
    "/opt/*/lib64",   "/opt/*/envs/*/lib", "/opt/*/pkgs/*/lib",
    "/opt/*/*/lib",   "/usr/local/*/lib",
};

// Directories with libraries of wheels, whose names contain a hash.
constexpr const char* kWheelDirectories[] = {
    "/*/lib/python3*/site-packages/*.libs",  // also a virtual environment /venv
    "/*/lib/python3*/dist-packages/*.libs",
    "/usr/local/lib/python3*/site-packages/*.libs",
    "/usr/local/lib/python3*/dist-packages/*.libs",
    "/opt/*/lib/python3*/site-packages/*.libs",
    "/opt/*/envs/*/lib/python3*/site-packages/*.libs",
};

bool is_own_kind(const std::string& begin) {
  Elf64_Ehdr header{};
  if (begin.size() < sizeof header) return false;
  std::memcpy(&header, begin.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_DYN &&
         header.e_machine == kMachine;
}

class Search {
 public:
  Search(const Root& root, size_t most_names) : root_(root), names_left_(most_names) {}

  void add(const std::string& path, const Library& library) {
    if (names_left_ == 0 || copies_.found.size() == kMostCopies) {
      copies_.complete = false;
      return;
    }
    --names_left_;
    auto file = root_.find_file(path);
    struct stat status {};
    if (!file || ::fstat(file->get(), &status) != 0) return;
    if (!known_.insert({status.st_dev, status.st_ino}).second) return;
    const auto begin = root_.begin_of(*file, sizeof(Elf64_Ehdr));
    if (begin && is_own_kind(*begin)) copies_.found.push_back({std::move(*file), path, &library});
  }
  void add_directory(const std::string& path) {
    for (const auto& library : kLibraries) {
      add(path + "/" + library.soname, library);
      add(path + "/" + library.link, library);
    }
  }
  void add_renamed(const std::string& path) {
    for (const auto& entry : list(path))
      if (const Library* const library = library_of(entry.name))
        add(path + "/" + entry.name, *library);
  }
  // Calls `use` with each directory that matches `rest`, a pattern below `directory`.
  template <class Use>
  void expand(const std::string& directory, std::string_view rest, const Use& use) {
    if (rest.empty()) {
      use(directory);
      return;
    }
    const std::string part(rest.substr(1, rest.find('/', 1) - 1));
    rest.remove_prefix(part.size() + 1);
    if (part.find('*') == part.npos) {
      expand(directory + "/" + part, rest, use);
      return;
    }
    for (const auto& entry : list(directory.empty() ? "/" : directory))
      if (entry.kind != Entry::Kind::kFile && ::fnmatch(part.c_str(), entry.name.c_str(), 0) == 0)
        expand(directory + "/" + entry.name, rest, use);
  }
  [[nodiscard]] Copies take() { return std::move(copies_); }

 private:
  std::vector<Entry> list(const std::string& path) {
    if (names_left_ == 0) copies_.complete = false;
    auto entries = root_.list(path, names_left_).value_or(std::vector<Entry>());
    names_left_ -= entries.size();
    return entries;
  }

  const Root& root_;
  size_t names_left_;
  std::set<std::pair<dev_t, ino_t>> known_;
  Copies copies_;
};

}  // namespace

const Library* library_of(std::string_view name) {
  for (const auto& library : kLibraries) {
    const std::string_view stem = library.stem;
    if (!name.starts_with(stem) || name.find(".so") == name.npos) continue;
    const char behind = name[stem.size()];
    if (behind == '.' || behind == '-') return &library;
  }
  return nullptr;
}

Copies find_copies(const Root& root, const LoaderCache& cache,
                   const std::vector<std::string>& library_path, size_t most_names) {
  Search search(root, most_names);
  for (const auto& library : kLibraries)
    for (const auto& path : cache.paths_of({library.soname, library.link}))
      search.add(path, library);
  for (const auto& directory : library_path) search.add_directory(directory);
  for (const char* const directory : base::kLoaderDirectories) search.add_directory(directory);
  for (const char* const pattern : kDirectories)
    search.expand("", pattern, [&search](const auto& path) { search.add_directory(path); });
  for (const char* const pattern : kWheelDirectories)
    search.expand("", pattern, [&search](const auto& path) { search.add_renamed(path); });
  return search.take();
}

std::vector<std::string> missing_stubs(const Root& root, const LoaderCache& cache) {
  std::vector<std::string> missing;
  for (const char* const name : kStubs) {
    const Library stub{name, name, name};
    Search search(root, kMostNames);
    for (const auto& path : cache.paths_of({name})) search.add(path, stub);
    for (const char* const directory : base::kLoaderDirectories)
      search.add(std::string(directory) + "/" + name, stub);
    if (search.take().found.empty()) missing.emplace_back(name);
  }
  return missing;
}

}  // namespace vrdma::cli::hook
