// One member of a run: it does its part of each batch, and looks at what came of all.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/integrity/device.h"
#include "tests/integrity/meeting.h"
#include "tests/integrity/model.h"
#include "tests/integrity/pools.h"

namespace integrity {

struct Options {
  std::string device;
  uint8_t gid_index = 0;
  uint32_t number = 0, members = 2;
  uint64_t seed = 1;
  bool unreliable = false;  // UC too: nothing is lost between the members
  bool kills = false;       // processes of the daemon are killed: an atomic in doubt fails its link
  bool deaths = false;      // members are killed
  bool forks = false;
  bool lossy = false;        // a datagram may come twice
  uint32_t first_epoch = 0;  // begins there
  uint32_t without = 0;      // parts of the plan
};

class Runner {
 public:
  Runner(Options options, Meeting* meeting);
  // Epochs, until the run is over.
  void run();

 private:
  // ---- an epoch
  bool epoch(uint32_t number);  // false: it was lost
  void work_epoch();
  void close_device();
  void look_after_end();
  [[nodiscard]] ibv_context* open_device() const;

  // ---- a batch
  void run(Batch* batch);
  void connect_links();
  void prepare(const Batch& batch, Prediction* prediction);
  void bind_windows(const Batch& batch);
  // A worker or a member that dies may leave a part of a message in a receive, behind the bytes of
  // the message that comes into it then.
  [[nodiscard]] bool leaves_parts() const { return options_.kills || options_.deaths; }
  [[nodiscard]] bool shared_in_doubt(const Batch& batch) const;
  void work(const Batch& batch);
  void finish(const Batch& batch);
  void release_windows(const Batch& batch);
  void compare(const Batch& batch);
  [[noreturn]] void report(const Batch& batch, size_t area, size_t at) const;

  // ---- ends
  void end_if_due(const Batch& batch, bool all_posted);
  void end(const Batch& batch, Endpoint* endpoint);
  void end_other_side(const Batch& batch);
  template <class Which>
  void give_back(const Batch& batch, unsigned side, Which which);

  // ---- a ping-pong
  void prepare_ping_pong(const PingPong& plan);
  void ping_pong(const Batch& batch);
  void serve(const Batch& batch, uint32_t round);
  void await(const Batch& batch, uint32_t round, uint32_t left);

  void fork_child();
  // Polls until it is so. Throws Lost.
  template <class Condition>
  void wait(Condition condition, const char* what);
  bool poll();
  void look();  // for news of other members, and for complaints
  [[nodiscard]] bool is_far(const Stream& stream) const {
    return device_->has(stream.link, 1 - stream.from);
  }

  const Options options_;
  Meeting* meeting_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  Random random_;  // of what may differ between members: time, and ways to the same end
  std::vector<Info> infos_;
  std::set<unsigned> down_;  // links that must be connected
  std::vector<Doubt> doubts_;
  bool ended_ = false;  // this member has ended the link that ends in this batch
  std::chrono::steady_clock::time_point all_posted_since_;
  pid_t child_ = -1;
};

}  // namespace integrity
