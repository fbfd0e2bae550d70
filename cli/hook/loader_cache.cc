#include "cli/hook/loader_cache.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <optional>

namespace vrdma::cli::hook {

namespace {

using base::Result;
using CacheEntry = LoaderCache::Entry;

constexpr std::string_view kOldMagic = "ld.so-1.7.0", kMagic = "glibc-ld.so.cache1.1";
constexpr uint32_t kExtensionMagic = 0xeaa42174;
constexpr uint32_t kHwcapsTag = 1;
constexpr uint64_t kRefersToHwcaps = uint64_t{1} << 62;
constexpr uint8_t kLittleEndian = 2;
#if defined(__x86_64__)
constexpr int32_t kOwnFlags = 0x0303;  // an ELF library for libc6, of this architecture
#elif defined(__aarch64__)
constexpr int32_t kOwnFlags = 0x0a03;
#endif

constexpr size_t kOldHeader = 16, kOldEntry = 12;  // bytes
constexpr size_t kMostText = size_t{16} << 20;     // bytes of all names: entries may share one
constexpr size_t kMostHwcaps = 256;

struct FileHeader {
  char magic[20];
  uint32_t entries, text;
  uint8_t flags, unused[3];
  uint32_t extensions;  // 0: none
  uint32_t reserved[3];
};
static_assert(sizeof(FileHeader) == 48);

struct FileEntry {
  int32_t flags;
  uint32_t name, path, kernel;
  uint64_t hwcap;
};
static_assert(sizeof(FileEntry) == 24);

struct FileExtensions {
  uint32_t magic, count;
};
struct FileExtension {
  uint32_t tag, flags, offset, size;
};
static_assert(sizeof(FileExtension) == 16);

// A file in the new format, of which nothing is believed.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  [[nodiscard]] std::optional<T> at(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return {};
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] std::optional<std::string> text_at(uint32_t offset) {
    if (offset >= bytes_.size()) return {};
    const auto rest = bytes_.substr(offset, PATH_MAX);
    const size_t length = rest.find('\0');
    if (length == rest.npos || length > kMostText - read_) return {};
    read_ += length;
    return std::string(rest.substr(0, length));
  }

 private:
  std::string_view bytes_;
  size_t read_ = 0;
};

// Behind a file of the old format, aligned.
std::string_view new_format_in(std::string_view bytes) {
  if (!bytes.starts_with(kOldMagic)) return bytes;
  const auto entries = Reader(bytes).at<uint32_t>(kOldHeader - sizeof(uint32_t));
  const uint64_t end = (kOldHeader + uint64_t{entries.value_or(0)} * kOldEntry + 7) & ~uint64_t{7};
  return bytes.substr(std::min<uint64_t>(end, bytes.size()));
}

std::optional<std::vector<std::string>> read_hwcaps(Reader& reader, uint32_t extensions) {
  std::vector<std::string> names;
  if (extensions == 0) return names;
  const auto head = reader.at<FileExtensions>(extensions);
  if (!head || head->magic != kExtensionMagic) return {};
  for (uint32_t i = 0; i < head->count; ++i) {
    const auto section =
        reader.at<FileExtension>(extensions + sizeof *head + uint64_t{i} * sizeof(FileExtension));
    if (!section) return {};
    if (section->tag != kHwcapsTag) continue;
    for (uint64_t place = 0; place + sizeof(uint32_t) <= section->size; place += sizeof(uint32_t)) {
      const auto offset = reader.at<uint32_t>(section->offset + place);
      auto name = offset ? reader.text_at(*offset) : std::nullopt;
      if (!name || names.size() == kMostHwcaps) return {};
      names.push_back(std::move(*name));
    }
  }
  return names;
}

// The loader's order of names (_dl_cache_libcmp() of glibc): numbers by value, behind letters.
int compare_names(const char* a, const char* b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number = [&is_digit](const char*& at) {
    uint32_t value = 0;  // wraps around for long numbers, as the loader's
    for (; is_digit(*at); ++at) value = value * 10 + static_cast<uint32_t>(*at - '0');
    return static_cast<int32_t>(value);
  };
  while (*a != '\0') {
    if (is_digit(*a) != is_digit(*b)) return is_digit(*a) ? 1 : -1;
    if (is_digit(*a)) {
      const int32_t first = number(a), second = number(b);
      if (first != second) return first < second ? -1 : 1;
    } else if (*a != *b) {
      return *a - *b;
    } else {
      ++a;
      ++b;
    }
  }
  return *a - *b;
}

// Descending. Entries that are equal in both keep their order, which is that of their hwcaps.
bool comes_before(const CacheEntry& a, const CacheEntry& b) {
  const int order = compare_names(a.name.c_str(), b.name.c_str());
  return order != 0 ? order > 0 : a.flags > b.flags;
}

class Writer {
 public:
  template <class T>
  void add(const T& value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void put(size_t offset, const T& value) {
    std::memcpy(out_.data() + offset, &value, sizeof value);
  }
  uint32_t add_text(const std::string& text) {
    const uint32_t offset = size();
    out_.append(text.c_str(), text.size() + 1);
    return offset;
  }
  void align(size_t to) { out_.resize((out_.size() + to - 1) / to * to); }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(out_.size()); }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

void LoaderCache::redirect(const std::string& name, const std::string& path) {
  std::erase_if(entries,
                [&name](const Entry& e) { return e.flags == kOwnFlags && e.name == name; });
  entries.push_back({kOwnFlags, name, path, 0, 0});
}

std::vector<std::string> LoaderCache::paths_of(const std::vector<std::string>& names) const {
  std::vector<std::string> paths;
  for (const auto& entry : entries)
    if (entry.flags == kOwnFlags &&
        std::find(names.begin(), names.end(), entry.name) != names.end())
      paths.push_back(entry.path);
  return paths;
}

Result<LoaderCache> read_loader_cache(std::string_view bytes) {
  const auto damaged = [](const char* what) {
    return base::fail(EBADMSG, std::string("the loader's cache is not understood: ") + what);
  };
  if (bytes.size() > kMostCache) return damaged("it is too long");
  bytes = new_format_in(bytes);
  if (!bytes.starts_with(kMagic)) return damaged("its format is unknown");
  Reader reader(bytes);
  const auto header = reader.at<FileHeader>(0);
  if (!header || (header->flags != 0 && header->flags != kLittleEndian))
    return damaged("its header is invalid");
  if (header->entries > (bytes.size() - sizeof *header) / sizeof(FileEntry))
    return damaged("its entries are incomplete");

  LoaderCache cache;
  auto hwcaps = read_hwcaps(reader, header->extensions);
  if (!hwcaps) return damaged("its extensions are invalid");
  cache.hwcaps = std::move(*hwcaps);
  for (uint64_t i = 0; i < header->entries; ++i) {
    const auto entry = reader.at<FileEntry>(sizeof *header + i * sizeof(FileEntry));
    auto name = reader.text_at(entry->name), path = reader.text_at(entry->path);
    if (!name || !path) return damaged("an entry has no name");
    if ((entry->hwcap & kRefersToHwcaps) != 0 &&
        static_cast<uint32_t>(entry->hwcap) >= cache.hwcaps.size())
      return damaged("an entry refers to a missing subdirectory");
    cache.entries.push_back(
        {entry->flags, std::move(*name), std::move(*path), entry->kernel, entry->hwcap});
  }
  return cache;
}

std::string write_loader_cache(LoaderCache cache) {
  std::stable_sort(cache.entries.begin(), cache.entries.end(), comes_before);
  FileHeader header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.entries = static_cast<uint32_t>(cache.entries.size());
  header.flags = kLittleEndian;
  Writer writer;
  writer.add(header);
  for (const auto& entry : cache.entries)
    writer.add(FileEntry{entry.flags, 0, 0, entry.kernel, entry.hwcap});
  const uint32_t texts = writer.size();
  size_t place = sizeof header;
  for (const auto& entry : cache.entries) {
    const uint32_t name = writer.add_text(entry.name), path = writer.add_text(entry.path);
    writer.put(place, FileEntry{entry.flags, name, path, entry.kernel, entry.hwcap});
    place += sizeof(FileEntry);
  }
  std::vector<uint32_t> hwcaps;
  for (const auto& name : cache.hwcaps) hwcaps.push_back(writer.add_text(name));
  header.text = writer.size() - texts;
  if (!hwcaps.empty()) {
    writer.align(sizeof(uint32_t));
    header.extensions = writer.size();
    writer.add(FileExtensions{kExtensionMagic, 1});
    writer.add(FileExtension{kHwcapsTag, 0,
                             writer.size() + static_cast<uint32_t>(sizeof(FileExtension)),
                             static_cast<uint32_t>(hwcaps.size() * sizeof(uint32_t))});
    for (const uint32_t offset : hwcaps) writer.add(offset);
  }
  writer.put(0, header);
  return writer.take();
}

}  // namespace vrdma::cli::hook
