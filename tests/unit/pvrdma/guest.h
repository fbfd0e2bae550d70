// A guest and its driver, in front of a PciFunction: its memory, page directories, commands, rings
// and doorbells, as vmw_pvrdma of Linux makes them. Every page that it takes lies somewhere else.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <bit>
#include <fstream>
#include <numeric>
#include <random>
#include <string>

#include "core/base/mapping.h"
#include "pvrdma/function/pci_function.h"
#include "tests/unit/pvrdma/fake_verbs.h"

namespace vrdma::pvrdma {

inline ibv_gid gid_of(uint8_t last) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = last;
  return gid;
}

class Guest {
 public:
  static constexpr uint64_t kRam = uint64_t{16} << 20, kHigh = uint64_t{4} << 30;

  Guest() {
    verbs.gids = {gid_of(1), gid_of(2)};
    loop = base::EventLoop::create().value();
    adapter = Adapter::open(*loop, "fake0").value();
    image_memory = Image::map(image_file).value();
    start();
    file = base::make_memfd("guest", kRam).value();
    memory = base::Mapping::shared(file, kRam, 0, PROT_READ | PROT_WRITE).value();
    // Low memory, and the rest above a hole.
    map({0, kRam / 2, 0, true, true});
    map({kHigh, kRam / 2, kRam / 2, true, true});
    free_.resize(kRam / kPageSize - 1);
    std::iota(free_.begin(), free_.end(), 1);
    std::shuffle(free_.begin(), free_.end(), random_);
    for (uint32_t i = 0; i < kVectors; ++i) {
      vectors[i] = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      begin();
      function->set_vector(i, vectors[i].duplicate().value());
      note();
    }
    // A request may use the guest's memory and nothing else of this process.
    verbs.permits = [](uint64_t addr, uint64_t length) {
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);) {
        uint64_t from = 0, to = 0;
        if (line.find("memfd:guest") == std::string::npos ||
            std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2)
          continue;
        if (addr < from || addr >= to) continue;
        const uint64_t part = std::min(length, to - addr);
        addr += part;
        length -= part;
      }
      return length == 0;
    };
  }

  // ---- messages of the VMM, as the server makes them calls
  void begin() { image().progress.begin(); }
  void note() {
    function->before_note();
    image().progress.note({}, 0, true, {}, 0);
    image().progress.answered = image().progress.noted.load();
    function->noted();
  }
  void map(const DmaRange& range) {
    begin();
    EXPECT_EQ(0, function->map(range, file.duplicate().value()));
    note();
  }

  // ---- processes
  [[nodiscard]] Image& image() { return *image_memory.at<Image>(0); }
  void start() {
    function =
        PciFunction::create(*loop, *adapter, image(), custody, [this](uint32_t slot) {
          const auto found = custody.held.find(slot);
          return found != custody.held.end() ? found->second.duplicate().value() : base::Fd();
        }).value();
  }
  // The process dies where it is, and another one goes on; vrdmad has noticed.
  void die() {
    function.reset();  // which leaves the image as it is
    start();
  }
  struct Custody final : pvrdma::Custody {
    void hold(uint32_t slot, const base::Fd& fd) override { held[slot] = fd.duplicate().value(); }
    void drop(uint32_t slot) override { held.erase(slot); }
    std::map<uint32_t, base::Fd> held;
  };

  // ---- memory
  [[nodiscard]] uint64_t take_page() {
    const uint64_t page = free_.back();
    free_.pop_back();
    return address_of(page);
  }
  void give_page(uint64_t address) {
    free_.push_back(address < kHigh ? address / kPageSize
                                    : (address - kHigh + kRam / 2) / kPageSize);
  }
  template <class T = uint8_t>
  [[nodiscard]] T* at(uint64_t address) {
    return memory.at<T>(address < kHigh ? address : address - kHigh + kRam / 2);
  }
  [[nodiscard]] std::vector<uint64_t> take_pages(size_t count) {
    std::vector<uint64_t> pages(count);
    for (uint64_t& page : pages) {
      page = take_page();
      std::memset(at(page), 0, kPageSize);
    }
    return pages;
  }
  // A directory of two levels.
  [[nodiscard]] uint64_t directory(const std::vector<uint64_t>& pages) {
    const uint64_t top = take_page();
    for (size_t i = 0; i < pages.size(); i += 512) {
      const uint64_t table = take_page();
      at<uint64_t>(top)[i / 512] = table;
      for (size_t k = i; k < std::min(i + 512, pages.size()); ++k)
        at<uint64_t>(table)[k - i] = pages[k];
    }
    return top;
  }

  // ---- registers
  void write(uint32_t region, uint64_t offset, uint32_t value) {
    begin();
    function->write(region, offset, {reinterpret_cast<const uint8_t*>(&value), sizeof value});
    note();
    function->answered();
  }
  [[nodiscard]] uint32_t read(uint32_t region, uint64_t offset) {
    uint32_t value = 0;
    function->read(region, offset, {reinterpret_cast<uint8_t*>(&value), sizeof value});
    return value;
  }
  void doorbell(uint64_t offset, uint32_t value, uint64_t page = 0) {
    write(kDoorbellBar, page * kPageSize + offset, value);
  }
  [[nodiscard]] uint64_t interrupts(uint32_t vector) {
    uint64_t count = 0;
    return ::read(vectors[vector].get(), &count, sizeof count) == sizeof count ? count : 0;
  }

  // ---- the driver
  void attach(uint32_t version = 20) {
    shared_region = take_page();
    auto& shared = *at<SharedRegion>(shared_region);
    shared = {};
    shared.driver_version = version;
    shared.command_slot = command_slot = take_page();
    shared.response_slot = answer_slot = take_page();
    event_pages = take_pages(4);
    told_pages = take_pages(4);
    shared.events = {4, 0, directory(event_pages)};
    shared.completions = {4, 0, directory(told_pages)};
    write(kConfigRegion, 0x18, kDoorbells);
    write(kRegisterBar, kRegRegionLow, static_cast<uint32_t>(shared_region));
    write(kRegisterBar, kRegRegionHigh, static_cast<uint32_t>(shared_region >> 32));
    write(kRegisterBar, kRegMask, 0);
    write(kRegisterBar, kRegControl, kActivate);
  }
  [[nodiscard]] bool has_failed() { return read(kRegisterBar, kRegError) != 0; }

  // Executes a command. Its answer is in answer(); false: it failed.
  template <class Body>
  [[nodiscard]] bool execute(Command command, const Body& body) {
    CommandSlot slot{};
    slot.header.command = static_cast<uint32_t>(command);
    slot.header.key = 0x1234;
    std::memcpy(reinterpret_cast<uint8_t*>(&slot) + sizeof slot.header, &body, sizeof body);
    std::memset(at(answer_slot), 0xee, sizeof(AnswerSlot));
    std::memcpy(at(command_slot), &slot, sizeof slot);
    write(kRegisterBar, kRegRequest, 0);
    return !has_failed();
  }
  [[nodiscard]] const AnswerSlot& answer() { return *at<AnswerSlot>(answer_slot); }

  uint32_t create_pd(uint32_t context = 0) {
    EXPECT_TRUE(execute(Command::kCreatePd, CreatePd{context}));
    return answer().made.handle;
  }
  struct Memory {
    uint32_t handle, key;
    uint64_t start;
    std::vector<uint64_t> pages;
  };
  // `length` bytes that begin `before` bytes behind the begin of a page.
  Memory create_mr(uint32_t pd, uint64_t length, uint64_t before = 0, uint32_t access = 15) {
    Memory mr{0, 0, 0x7f0000000000 + before,
              take_pages((before + length + kPageSize - 1) / kPageSize)};
    EXPECT_TRUE(
        execute(Command::kCreateMr, CreateMr{mr.start, length, directory(mr.pages), pd, access, 0,
                                             static_cast<uint32_t>(mr.pages.size())}));
    mr.handle = answer().mr.handle;
    mr.key = answer().mr.lkey;
    return mr;
  }
  [[nodiscard]] uint8_t& byte(const Memory& mr, uint64_t offset) {
    const uint64_t from = mr.start % kPageSize + offset;
    return *at(mr.pages[from / kPageSize] + from % kPageSize);
  }

  struct CompletionQueue {
    uint32_t handle, n;
    std::vector<uint64_t> pages;
  };
  CompletionQueue create_cq(uint32_t n, uint32_t context = 0) {
    CompletionQueue cq{0, n, take_pages(1 + (n * 64 + kPageSize - 1) / kPageSize)};
    EXPECT_TRUE(execute(Command::kCreateCq, CreateCq{directory(cq.pages), context, n,
                                                     static_cast<uint32_t>(cq.pages.size())}));
    cq.handle = answer().cq.handle;
    return cq;
  }
  [[nodiscard]] std::optional<CompletionEntry> poll(const CompletionQueue& cq) {
    auto& indices = at<Indices>(cq.pages[0])[1];
    const uint32_t head = indices.consumer;
    if (head == indices.producer) return std::nullopt;
    const uint64_t offset = uint64_t{head & (cq.n - 1)} * sizeof(CompletionEntry);
    const auto entry = *at<CompletionEntry>(cq.pages[1 + offset / kPageSize] + offset % kPageSize);
    indices.consumer = (head + 1) & (2 * cq.n - 1);
    return entry;
  }

  // The driver says that it has found the queue empty, and looks again.
  [[nodiscard]] std::optional<CompletionEntry> poll_as_driver(const CompletionQueue& cq) {
    if (auto entry = poll(cq); entry) return entry;
    doorbell(kCqDoorbell, cq.handle | kCqPoll);
    go_on();
    return poll(cq);
  }

  struct QueuePair {
    uint32_t handle, qpn, n, send_stride, receive_stride, send_pages;
    std::vector<uint64_t> pages;
    uint64_t doorbell_page = 0;
  };
  QueuePair create_qp(uint32_t pd, const CompletionQueue& cq, uint32_t n, uint32_t sges = 2,
                      uint32_t type = IBV_QPT_RC, std::optional<uint32_t> srq = {},
                      const CompletionQueue* receives = nullptr) {
    QueuePair qp{};
    qp.n = n;
    qp.send_stride = std::bit_ceil(80 + 16 * sges);
    qp.receive_stride = std::bit_ceil(16 + 16 * sges);
    qp.send_pages = (n * qp.send_stride + 4095) / 4096;
    qp.pages = take_pages(1 + qp.send_pages + (n * qp.receive_stride + 4095) / 4096);
    CreateQp wish{};
    wish.directory = directory(qp.pages);
    wish.pd = pd;
    wish.send_cq = cq.handle;
    wish.recv_cq = receives != nullptr ? receives->handle : cq.handle;
    wish.srq = srq.value_or(0);
    wish.is_srq = srq ? 1 : 0;
    wish.max_send_wr = wish.max_recv_wr = n;
    wish.max_send_sge = wish.max_recv_sge = sges;
    wish.pages = static_cast<uint16_t>(qp.pages.size());
    wish.send_pages = static_cast<uint16_t>(qp.send_pages);
    wish.qp_type = static_cast<uint8_t>(type);
    EXPECT_TRUE(execute(Command::kCreateQp, wish));
    qp.handle = answer().qp.handle;
    qp.qpn = answer().qp.qpn;
    return qp;
  }
  [[nodiscard]] static ModifyQp change(uint32_t handle, uint32_t state, uint32_t mask = 0,
                                       const QpAttributes& with = {}) {
    ModifyQp wish{handle, mask | IBV_QP_STATE, with};
    wish.attributes.qp_state = state;
    return wish;
  }
  [[nodiscard]] bool modify(const QueuePair& qp, ibv_qp_state state, uint32_t mask = 0,
                            const QpAttributes& with = {}) {
    return execute(Command::kModifyQp, change(qp.handle, state, mask, with)) &&
           answer().header.error == 0;
  }
  void connect(const QueuePair& qp, uint32_t peer) {
    QpAttributes with{};
    with.dest_qp_num = peer;
    EXPECT_TRUE(modify(qp, IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
    EXPECT_TRUE(modify(qp, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_DEST_QPN, with));
    EXPECT_TRUE(modify(qp, IBV_QPS_RTS));
  }
  void bind(uint32_t index, const ibv_gid& gid) {
    CreateBind wish{};
    wish.index = index;
    wish.type = kRoceV2;
    std::memcpy(wish.gid, gid.raw, 16);
    EXPECT_TRUE(execute(Command::kCreateBind, wish));
  }

  // Puts an entry into a ring, without a doorbell. False: the ring is full.
  template <class Entry>
  [[nodiscard]] bool put(const std::vector<uint64_t>& pages, size_t first_page, size_t pair,
                         uint32_t n, uint32_t stride, const Entry& entry,
                         const std::vector<Element>& elements) {
    auto& indices = at<Indices>(pages[0])[pair];
    const uint32_t tail = indices.producer;
    if (tail == (indices.consumer ^ n)) return false;
    const uint64_t offset = uint64_t{tail & (n - 1)} * stride;
    uint8_t* const to = at(pages[first_page + offset / kPageSize] + offset % kPageSize);
    std::memcpy(to, &entry, sizeof entry);
    std::memcpy(to + sizeof entry, elements.data(), elements.size() * sizeof(Element));
    indices.producer = (tail + 1) & (2 * n - 1);
    return true;
  }
  [[nodiscard]] bool put_send(const QueuePair& qp, SendEntry entry,
                              const std::vector<Element>& elements) {
    entry.elements = static_cast<uint32_t>(elements.size());
    return put(qp.pages, 1, 0, qp.n, qp.send_stride, entry, elements);
  }
  [[nodiscard]] bool put_receive(const QueuePair& qp, uint64_t wr_id,
                                 const std::vector<Element>& elements) {
    const ReceiveEntry entry{wr_id, static_cast<uint32_t>(elements.size()), 0};
    return put(qp.pages, 1 + qp.send_pages, 1, qp.n, qp.receive_stride, entry, elements);
  }
  void ring_sends(const QueuePair& qp) {
    doorbell(kQpDoorbell, qp.handle | kQpSend, qp.doorbell_page);
  }
  void ring_receives(const QueuePair& qp) {
    doorbell(kQpDoorbell, qp.handle | kQpReceive, qp.doorbell_page);
  }

  // What the device does meanwhile.
  void go_on() {
    do {
      while (loop->step()) {
      }
    } while (verbs.run() > 0);
    while (loop->step()) {
    }
  }

  static constexpr uint32_t kDoorbells = 0xfe000000;
  fake::Verbs verbs;
  std::unique_ptr<base::EventLoop> loop;
  std::unique_ptr<Adapter> adapter;
  base::Fd image_file = Image::make().value();
  base::Mapping image_memory;
  Custody custody;
  std::unique_ptr<PciFunction> function;
  base::Fd file;
  base::Mapping memory;
  base::Fd vectors[kVectors];
  uint64_t shared_region = 0, command_slot = 0, answer_slot = 0;
  std::vector<uint64_t> event_pages, told_pages;

 private:
  [[nodiscard]] static uint64_t address_of(uint64_t page) {
    return page < kRam / 2 / kPageSize ? page * kPageSize : kHigh + page * kPageSize - kRam / 2;
  }
  std::vector<uint64_t> free_;
  std::mt19937_64 random_{3};
};

}  // namespace vrdma::pvrdma
