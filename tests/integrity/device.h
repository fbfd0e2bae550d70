// A member's objects of one epoch.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "tests/integrity/ledger.h"
#include "tests/integrity/meeting.h"
#include "tests/integrity/memory.h"

namespace integrity {

class Datagrams;
class Device;
class SharedReceives;

// A completion queue and the threads that poll it.
class Station {
 public:
  // `kills`: processes of the daemon are killed.
  Station(Device* device, const Queue& plan, bool kills);
  ~Station();
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  // Polls once, if no thread does; true if completions came.
  bool poll();
  void stop();
  // While it is held, no thread has a completion that it did not give to the ledger.
  [[nodiscard]] std::unique_lock<std::shared_mutex> hold() { return std::unique_lock(gate_); }
  void resize(uint32_t entries) const;
  // The objects stay to the device, which is closed with them.
  void abandon() { abandoned_ = true; }

 private:
  bool take();
  size_t poll_plain(ibv_wc* to, size_t most) const;
  size_t poll_extended(ibv_wc* to, size_t most) const;
  void run();
  void run_by_events();

  Device* device_;
  const Queue plan_;
  const bool kills_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_cq_ex* extended_ = nullptr;
  std::shared_mutex gate_;
  std::atomic<bool> over_ = false;
  bool abandoned_ = false;
  std::vector<std::thread> threads_;
};

// One end of a link.
struct Endpoint {
  unsigned link, side;
  ibv_qp* qp = nullptr;
  ibv_qp_ex* extended = nullptr;
  ibv_mw* windows[2] = {};  // by type - 1
  bool connected = false;
  uint32_t psn = 0;  // that its requests begin with
};

class Device {
 public:
  Device(ibv_context* context, uint8_t gid_index, const World& world, unsigned member, bool kills);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const World& world() const { return world_; }
  [[nodiscard]] unsigned member() const { return member_; }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] Ledger& ledger() { return ledger_; }
  [[nodiscard]] std::span<uint8_t> area(size_t index) const { return areas_[index].bytes(); }
  [[nodiscard]] uint8_t* at(const Piece& piece) const { return area(piece.area).data() + piece.at; }
  [[nodiscard]] ibv_mr* region(size_t index) const { return regions_[index]; }
  void register_anew(unsigned region, Random* random);
  void deregister(unsigned region);

  [[nodiscard]] std::vector<Endpoint>& endpoints() { return endpoints_; }
  [[nodiscard]] Endpoint& endpoint(unsigned link, unsigned side);
  [[nodiscard]] bool has(unsigned link, unsigned side) const {
    return world_.links[link].ends[side].member == member_;
  }
  [[nodiscard]] const End& end_of(const Endpoint& endpoint) const {
    return world_.links[endpoint.link].ends[endpoint.side];
  }
  // A queue pair in INIT.
  void create(Endpoint* endpoint);
  void connect(Endpoint* endpoint, const Info& peer);
  void to_error(const Endpoint& endpoint) const;
  // Nothing of the queue pair is outstanding afterwards, in its queues and in the ledger.
  void reset(Endpoint* endpoint);
  void destroy(Endpoint* endpoint);
  void bind(const Endpoint& endpoint, Window type, const Piece* piece);
  void invalidate(const Endpoint& endpoint, Window type);

  [[nodiscard]] std::vector<std::unique_ptr<Station>>& stations() { return stations_; }
  [[nodiscard]] SharedReceives& shared() const { return *shared_; }
  [[nodiscard]] Datagrams& datagrams() const { return *datagrams_; }
  // A completion of any of its queue pairs.
  void complete(const ibv_wc& wc, bool in_order);
  [[nodiscard]] uint8_t gid_index() const { return gid_index_; }
  [[nodiscard]] Info info() const;
  // Threads end; then everything is destroyed in order, or left to ibv_close_device().
  void close(bool destroys);

 private:
  void register_one(unsigned region);
  void forget(Endpoint* endpoint, const std::function<void()>& call);

  ibv_context* context_;
  const uint8_t gid_index_;
  const World& world_;
  const unsigned member_;
  ibv_pd* pd_ = nullptr;
  std::vector<Block> areas_;
  std::vector<ibv_mr*> regions_;
  std::vector<std::unique_ptr<Station>> stations_;
  std::vector<Endpoint> endpoints_;
  uint64_t connections_ = 0;  // random, of the last one
  std::unique_ptr<SharedReceives> shared_;
  std::unique_ptr<Datagrams> datagrams_;
  Ledger ledger_;
};

}  // namespace integrity
