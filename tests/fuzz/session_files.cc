// The files of sessions in the run directory, as the next daemon reads them: damaged in any way,
// they are refused or understood, and never crash or hang the daemon.
//
// Two clients of rdma_cm connect, their daemon dies, the input changes bytes of both files, and
// another daemon adopts what it can. The same bytes are then read as the file of a verbs session,
// of which the records are walked, replaced and compacted.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/vrdmad/cm/rig.h"
#include "vrdmad/records/session_file.h"
#include "vrdmad/worker/session.h"

namespace {

using namespace vrdma;  // NOLINT(google-build-using-namespace): a fuzz target
namespace fs = std::filesystem;

constexpr size_t kHeader = 1024;  // of a record file; the log begins behind it

void require(bool holds) {
  if (!holds) std::abort();
}

struct Directory {
  fs::path path;
  Directory() {
    std::string name = (fs::temp_directory_path() / "fuzz.XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Directory() { fs::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

constexpr size_t kMostChanges = 8;  // with more of them, no file would be read beyond its header

// Each change is three bytes of the input: a place, and what to put there. Most places are records.
void damage(const fs::path& path, const uint8_t* data, size_t size) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  require(file.good());
  const uint8_t* const end = data + std::min(size / 3, kMostChanges) * 3;
  for (; data != end; data += 3) {
    const size_t place = data[0] == 0 ? data[1] : kHeader + data[0] * 16 + data[1] % 64;
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(data[2]));
  }
}

void adopt_connections(const Directory& directory, const uint8_t* data, size_t size) {
  vrdmad::CmRig rig;
  rig.cm.keep_sessions(directory.path);
  {
    vrdmad::CmClient one(rig, 0), two(rig, 1);
    two.listener(1, vrdmad::kPort);
    const uint32_t id = one.id(one.channel());
    require(one.resolve(id, vrdmad::CmRig::address(1, vrdmad::kPort)) == 0);
    rig.settle();
    require(one.call(ipc::CmCall::kResolveRoute, id) == 0);
    require(one.with_qp(ipc::CmCall::kConnect, id, 5) == 0);
    rig.settle();  // the listener's CONNECT_REQUEST is unread
    rig.cm.leave_sessions();
    rig.spaces = {};
    rig.devices = {};
    for (const auto& file : fs::directory_iterator(directory.path)) damage(file.path(), data, size);
    rig.new_daemon();
    rig.attach();
    rig.cm.keep_sessions(directory.path);
    rig.cm.adopt_sessions({});
    (void)one.resume();
    (void)two.resume();
  }
  rig.settle();
}

void read_objects(const Directory& directory, const uint8_t* data, size_t size) {
  using File = vrdmad::SessionFile;
  using vrdmad::Stored;
  const std::string path = directory.path / "1.session";
  {
    auto made = File::create(path);
    require(made.has_value());
    for (uint32_t number = 1; number <= 8; ++number)
      (*made)->put(Stored::kPd, number, data, std::min<size_t>(size, number * 8));
    (*made)->set_begun(7);
    (*made)->keep();
  }
  damage(path, data, size);
  if (const auto copied = File::open(path)) {  // as control reads it
    (void)(*copied)->is_open();
    require((*copied)->forbidden().size() < 4096);
  }
  auto opened = File::open(base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
  if (opened) {
    File& file = **opened;
    (void)vrdmad::SessionImage::decode(file.image());
    (void)file.last();
    require(file.forbidden().size() < 4096);
    volatile int64_t read = 0;  // so that the reads are not optimized away
    for (uint16_t kind = 0; kind <= static_cast<uint16_t>(vrdmad::kLastStored); ++kind)
      for (const auto& record : file.all(static_cast<Stored>(kind)))
        read = read + std::count(record.data, record.data + record.size, uint8_t{0});
    uint64_t value = 0;
    for (uint32_t i = 0; i < 4096; ++i) {  // enough to compact the log
      value = i;
      file.put(Stored::kAh, i % 4, &value, sizeof value);
    }
    const auto kept = file.all(Stored::kAh);
    const auto last = std::find_if(kept.begin(), kept.end(),
                                   [](const File::Record& record) { return record.number == 3; });
    require(!file.forbidden().empty() ||
            (last != kept.end() && std::memcmp(last->data, &value, sizeof value) == 0));
  }
  fs::remove(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);
  const Directory directory;
  adopt_connections(directory, data, size);
  read_objects(directory, data, size);
  return 0;
}
