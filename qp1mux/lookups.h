// Route lookups that wait for a network, which may answer late or never.
//
// At most kMost lookups of a tenant are under way. Its others wait in line and begin, in order, as
// these end, so a tenant whose peers do not answer delays only itself. (The line needs no bound:
// each lookup belongs to an id, and ids are limited.) A lookup without an answer at its deadline,
// which includes the wait in line, fails with ETIMEDOUT. After its end, by an answer, at the
// deadline or because its Lookup was destroyed, answers have no effect.
//
// Answers are delivered only by advance(), so that neither a network that answers at once nor the
// end of another lookup calls into code that is not prepared for it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "qp1mux/due_queue.h"
#include "qp1mux/route.h"

namespace vrdma::qp1mux {

class Lookups;

// One lookup. Move-only; the destructor ends it. Must not outlive the Mux.
class Lookup {
 public:
  Lookup() = default;
  Lookup(Lookup&& other) noexcept = default;
  Lookup& operator=(Lookup&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup() { reset(); }
  void reset();

 private:
  friend class Lookups;
  struct State;
  explicit Lookup(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Lookups {
 public:
  static constexpr uint32_t kMost = 64;

  using Answer = Routes::Answer;
  // Begins to look. May call its argument, and may return nullptr.
  using Begin = std::function<std::shared_ptr<void>(Answer)>;

  // `changed` is called when first() may have become earlier.
  explicit Lookups(std::function<void()> changed) : changed_(std::move(changed)) {}

  // `answer` is called at most once, by advance(), and may destroy its Lookup.
  [[nodiscard]] Lookup start(const std::string& tenant, base::TimePoint deadline, Begin begin,
                             Answer answer);
  void advance(base::TimePoint now);
  [[nodiscard]] const Due* first() const { return due_.first(); }

 private:
  friend class Lookup;
  struct Tenant {
    uint32_t under_way = 0;
    std::list<Lookup::State*> line;
  };
  using Tenants = std::map<std::string, Tenant>;

  void begin(const std::shared_ptr<Lookup::State>& lookup);
  void end(Lookup::State& lookup);
  void hurry(Tenants::iterator tenant);

  std::function<void()> changed_;
  DueQueue due_;
  Tenants tenants_;  // those with lookups
};

}  // namespace vrdma::qp1mux
