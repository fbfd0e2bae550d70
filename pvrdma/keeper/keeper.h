// The process that outlives the one that parses.
//
// A VMM connects once and never again, and ends if its connection does. So a parent, which parses
// nothing that a guest or a VMM wrote, holds the connection, the descriptors that came with it, and
// the image of the device (function/image.h). Its child serves the VMM, and if it dies the next one
// goes on where it was (vfio_user/progress.h).
//
// The child says by messages on a socketpair what to hold. The kernel keeps them when the child
// dies, and the parent reads them all before it starts the next, which inherits what is held.
// Children are forked and execute no program, so all have the memory layout of the parent: an
// attacker who makes them crash to guess at it has one attempt in kPause. A child that cannot be
// started, because the host lacks memory, processes or descriptors, is tried again after kPause.
//
// One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "pvrdma/keeper/custody.h"

namespace vrdma::pvrdma {

// What a child has from the start.
struct Inheritance {
  base::Fd keeper;              // the way to the parent: see Charge
  base::Fd vmm;                 // invalid: none is connected
  std::vector<base::Fd> slots;  // by their numbers; invalid: nothing is held
  bool is_first = false;
};

// The child's end.
class Charge final : public Custody {
 public:
  explicit Charge(base::Fd keeper) : keeper_(std::move(keeper)) {}
  [[nodiscard]] int fd() const { return keeper_.get(); }

  void hold(uint32_t slot, const base::Fd& fd) override;
  void drop(uint32_t slot) override;
  // It serves from now on.
  void ready();
  // The VMM has gone, and nothing of it need be held.
  void gone();

  // To be called when fd() is readable: a VMM that has connected. An error: the parent has gone or
  // says that this process must end.
  [[nodiscard]] base::Result<base::Fd> receive();

 private:
  void send(uint32_t what, uint32_t slot, int fd);
  base::Fd keeper_;
};

class Keeper {
 public:
  // From the start of one child to that of the next, at least.
  static constexpr std::chrono::milliseconds kPause{500};
  // Serves VMMs until Charge::receive() fails; the exit status. In the child.
  using Work = std::function<int(Inheritance)>;

  // `listener`: where VMMs connect. `slots`: how many descriptors can be held. `signals`: readable
  // when the keeper must end.
  Keeper(base::Fd listener, base::Fd signals, uint32_t slots, Work work,
         std::chrono::milliseconds pause = kPause);

  // The exit status: that of a first child which never became ready, or 0 after a signal. An error:
  // the first child could not be started.
  [[nodiscard]] base::Result<int> run();

 private:
  struct Child {
    pid_t pid = -1;
    base::Fd end;
    bool is_ready = false;
  };
  [[nodiscard]] base::Result<Child> start();
  // Until the child has died (false), or a signal has come (true).
  [[nodiscard]] bool attend(Child* child);
  // False: there is none.
  [[nodiscard]] bool take_message(Child* child);
  void accept(const Child& child);
  [[nodiscard]] static int end(Child* child, std::chrono::milliseconds patience);
  // Whether a signal has come meanwhile.
  [[nodiscard]] bool sleep_until(std::chrono::steady_clock::time_point end) const;

  base::Fd listener_, signals_;
  Work work_;
  std::chrono::milliseconds pause_;
  bool is_first_ = true;
  base::Fd vmm_;
  std::vector<base::Fd> slots_;
};

}  // namespace vrdma::pvrdma
