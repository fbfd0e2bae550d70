#include "cli/kubernetes/dra/slice_keeper.h"

#include <algorithm>
#include <chrono>

#include "cli/kubernetes/node/json.h"
#include "core/base/log.h"
#include "core/base/random.h"

namespace vrdma::cli::kubernetes {

namespace {

using base::Result;

constexpr auto kFirstPause = std::chrono::milliseconds(500);
constexpr auto kLongestPause = std::chrono::seconds(8);
// How long a watch lasts, and after how long a silent one is given up.
constexpr int kWatchSeconds = 50, kSilentSeconds = 60;

std::string in_query(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '=' ? "%3D" : c == ',' ? "%2C" : std::string(1, c);
  return out;
}

}  // namespace

SliceKeeper::SliceKeeper(ApiServer& server, std::string driver, std::string node)
    : server_(server), owner_{std::move(driver), std::move(node), ""}, thread_([this] { run(); }) {}

SliceKeeper::~SliceKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    ++change_;
  }
  changed_.notify_one();
  thread_.join();
}

void SliceKeeper::want(std::vector<PoolDevice> devices) {
  const std::lock_guard lock(mutex_);
  if (wanted_ == devices) return;
  wanted_ = std::move(devices);
  ++change_;
  changed_.notify_one();
}

void SliceKeeper::yield(bool yields) {
  const std::lock_guard lock(mutex_);
  if (yields_ == yields) return;
  yields_ = yields;
  ++change_;
  changed_.notify_one();
}

SliceKeeper::Status SliceKeeper::status() {
  const std::lock_guard lock(mutex_);
  return status_;
}

void SliceKeeper::tell(const std::string& trouble) {
  const std::lock_guard lock(mutex_);
  if (status_.trouble == trouble) return;
  status_.trouble = trouble;
  if (!trouble.empty()) return base::log_warning("ResourceSlices: " + trouble);
  base::log_info("ResourceSlices: the pool " + owner_.node + " is there, with generation " +
                 std::to_string(status_.generation));
}

void SliceKeeper::run() {
  std::chrono::nanoseconds pause = kFirstPause;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!wanted_ || yields_) {
      if (yields_) status_.trouble.clear();
      changed_.wait(lock);
      continue;
    }
    const auto wanted = *wanted_;
    const uint64_t change = change_;
    lock.unlock();
    auto wrote = keep(wanted);
    if (wrote) tell("");
    if (wrote && !*wrote)
      if (auto watched = wait_for_event(change); !watched) wrote = base::pass(watched.error());
    const bool failed = !wrote && wrote.error().code() != ECANCELED;
    if (failed) tell(wrote.error().message());
    lock.lock();
    // Whoever keeps writing something else must not be answered without end.
    const bool again = wrote ? *wrote : failed;
    if (failed) ++status_.failures;
    // Nodes that fail together must not try again together.
    const auto jitter = std::chrono::milliseconds(base::random32() % 250);
    changed_.wait_for(lock, (again ? pause : kFirstPause) + jitter, [this] { return stop_; });
    pause = again ? std::min<std::chrono::nanoseconds>(2 * pause, kLongestPause) : kFirstPause;
  }
}

// The node's uid, so that the slices end with the node.
Result<void> SliceKeeper::find_node() {
  const auto text = server_.get("/api/v1/nodes/" + owner_.node);
  if (!text) return base::pass(text.error());
  const auto node = nlohmann::json::parse(*text, nullptr, false);
  owner_.node_uid = text_of(member(node, "metadata"), "uid");
  if (owner_.node_uid.empty())
    return base::fail(EPROTO, "the API server answers with no node " + owner_.node);
  return {};
}

bool SliceKeeper::is_written(const std::vector<PoolDevice>& wanted,
                             const std::vector<Slice>& existing) const {
  return wanted == written_ && existing.size() == versions_.size() &&
         std::all_of(existing.begin(), existing.end(), [this](const Slice& slice) {
           const auto its = versions_.find(slice.name);
           return its != versions_.end() && its->second == slice.version;
         });
}

Result<void> SliceKeeper::write(const SliceWrite& write) {
  const std::string path = std::string(kSlicesPath) + "/" + write.name;
  {
    const std::lock_guard lock(mutex_);
    ++status_.writes;
  }
  if (write.what == SliceWrite::What::kRemove) return server_.remove(path);
  const auto text = write.what == SliceWrite::What::kCreate ? server_.post(kSlicesPath, write.body)
                                                            : server_.put(path, write.body);
  if (!text) return base::pass(text.error());
  const auto slice = parse_slice(*text);
  if (!slice) return base::pass(slice.error());
  for (const auto& device : slice->devices)
    if (!device.shared)
      return base::fail(ENOTSUP,
                        "the API server lets no claims share a device: Kubernetes 1.36, or "
                        "the feature gate DRAConsumableCapacity, is needed");
  versions_[write.name] = slice->version;
  const std::lock_guard lock(mutex_);
  status_.generation = std::max(status_.generation, slice->generation);
  return {};
}

// Whether something had to be written.
Result<bool> SliceKeeper::keep(const std::vector<PoolDevice>& wanted) {
  if (owner_.node_uid.empty())
    if (auto found = find_node(); !found) return base::pass(std::move(found).error());
  const auto text = server_.get(query());
  if (!text) return base::pass(text.error());
  const auto list = parse_slices(*text);
  if (!list) return base::pass(list.error());
  version_ = list->version;
  uint64_t generation = 0;
  for (const auto& slice : list->slices) generation = std::max(generation, slice.generation);
  {
    const std::lock_guard lock(mutex_);
    generation = status_.generation = std::max(status_.generation, generation);
  }
  if (is_written(wanted, list->slices)) return false;
  written_.clear();
  versions_.clear();
  const auto plan = plan_slices(owner_, wanted, list->slices, generation);
  for (const auto& each : plan)
    if (auto done = write(each); !done) return base::pass(std::move(done).error());
  if (!plan.empty()) written_ = wanted;
  return !plan.empty();
}

// An event, another wish, or the end of the watch, which may say that the list is too old.
Result<void> SliceKeeper::wait_for_event(uint64_t change) {
  auto watched = server_.watch(
      query() + "&watch=1&allowWatchBookmarks=true&timeoutSeconds=" +
          std::to_string(kWatchSeconds) + "&resourceVersion=" + version_,
      kSilentSeconds,
      [](const std::string& line) {
        return text_of(nlohmann::json::parse(line, nullptr, false), "type") == "BOOKMARK";
      },
      [&] {
        const std::lock_guard lock(mutex_);
        return change_ == change;
      });
  // A silent API server is asked for a list next.
  if (!watched && (watched.error().code() == ESTALE || watched.error().code() == ETIMEDOUT))
    return {};
  return watched;
}

std::string SliceKeeper::query() const {
  return std::string(kSlicesPath) + "?fieldSelector=" +
         in_query("spec.nodeName=" + owner_.node + ",spec.driver=" + owner_.driver);
}

}  // namespace vrdma::cli::kubernetes
