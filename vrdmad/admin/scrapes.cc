#include "vrdmad/admin/scrapes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/cpu_meter.h"
#include "vrdmad/admin/metrics.h"

namespace vrdma::vrdmad {

namespace {
constexpr int kRests = 4;  // times the processor time that the text took, within these bounds
constexpr base::Duration kLeastRest = std::chrono::milliseconds(20);
constexpr base::Duration kMostRest = std::chrono::seconds(1);  // clients wait for 5 s
}  // namespace

void Scrapes::ask(std::function<void(Text)> then) {
  waiting_.push_back(std::move(then));
  begin();
}

void Scrapes::begin() {
  if (gathering_ || rest_.active() || waiting_.empty()) return;
  gathering_ = true;
  cpu_before_ = base::thread_cpu_time();
  source_([this, alive = std::weak_ptr(alive_)](const std::vector<CounterRow>& rows) {
    if (!alive.expired()) end(rows);
  });
}

void Scrapes::end(const std::vector<CounterRow>& rows) {
  const auto text = std::make_shared<const std::string>(metrics_text(rows));
  gathering_ = false;
  const base::Duration took = base::thread_cpu_time() - cpu_before_;
  rest_ = loop_.after(std::clamp(kRests * took, kLeastRest, kMostRest), [this] {
    rest_.reset();
    begin();
  });
  for (const auto& then : std::exchange(waiting_, {})) then(text);
}

}  // namespace vrdma::vrdmad
