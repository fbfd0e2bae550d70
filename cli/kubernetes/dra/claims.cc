#include "cli/kubernetes/dra/claims.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "api/client.h"
#include "cli/cdi.h"
#include "cli/kubernetes/dra/pool.h"
#include "cli/kubernetes/node/text_file.h"
#include "core/base/log.h"
#include "core/base/option_check.h"

namespace vrdma::cli::kubernetes {

namespace {

using base::Result;

constexpr std::string_view kFileBegin = "vrdma.io-claim-", kFileEnd = ".json";
constexpr char kDriverLabel[] = "driver";  // whose claim it is
constexpr size_t kLargestFile = 1 << 20;
// The kubelet waits for 45 s, and then calls again.
constexpr std::chrono::milliseconds kApiPauses[] = {std::chrono::milliseconds(200),
                                                    std::chrono::milliseconds(1000)};
// A container has ended before the kubelet unprepares its claim; vrdmad sees that a moment later.
constexpr int kUndoTries = 20;
constexpr auto kUndoPause = std::chrono::milliseconds(100);

bool may_pass(int code) { return code == EAGAIN || code == ETIMEDOUT || code == EHOSTUNREACH; }

std::string title_of(const ClaimName& name) { return "claim " + name.space + "/" + name.name; }

// The uid in the name of a file, if it is one of a claim.
std::optional<std::string> uid_in(const std::string& file) {
  if (!file.starts_with(kFileBegin) || !file.ends_with(kFileEnd)) return {};
  return file.substr(kFileBegin.size(), file.size() - kFileBegin.size() - kFileEnd.size());
}

}  // namespace

void Claims::offer(std::map<std::string, Offered> devices, std::string hook) {
  const std::lock_guard lock(offered_mutex_);
  offered_ = std::move(devices);
  hook_ = std::move(hook);
}

std::string Claims::file_of(const std::string& uid) const {
  return places_.cdi_dir + "/" + std::string(kFileBegin) + uid + std::string(kFileEnd);
}

// ---- the API server -----------------------------------------------------------------------------

// Empty: the API server says that the claim has no device of this node.
Result<std::vector<AllocatedDevice>> Claims::look_up(const ClaimName& name) {
  auto text = server_.get(claim_path(name));
  for (const auto pause : kApiPauses) {
    if (text || !may_pass(text.error().code())) break;
    std::this_thread::sleep_for(pause);
    text = server_.get(claim_path(name));
  }
  if (!text && text.error().code() == ENOENT) return std::vector<AllocatedDevice>();
  if (!text) return base::pass(std::move(text).error());
  return allocated_devices(*text, name, places_.driver, places_.node);
}

// ---- what the kubelet calls ---------------------------------------------------------------------

Result<v1::Claim> Claims::record_of(const ClaimName& name,
                                    const std::vector<AllocatedDevice>& devices) {
  if (devices.empty())
    return base::fail(ENOENT, "the API server has no such claim with a device of node " +
                                  places_.node + " and the uid " + name.uid);
  v1::Claim claim;
  claim.set_uid(name.uid);
  claim.set_namespace_(name.space);
  claim.set_name(name.name);
  (*claim.mutable_labels())[kDriverLabel] = places_.driver;
  const std::lock_guard lock(offered_mutex_);
  for (const auto& device : devices) {
    const auto its = offered_.find(device.device);
    if (its == offered_.end())
      return base::fail(ENOENT, "this node has no device " + base::in_quotes(device.device));
    if (!its->second.unhealthy.empty()) return base::fail(EAGAIN, its->second.unhealthy);
    const auto quota = quota_of(device.consumed);
    if (!quota) return base::pass(quota.error());
    auto& share = *claim.add_shares();
    share.set_id(device.share);
    share.set_class_(its->second.class_name);
    for (const auto& setting : *quota) *share.add_quota() = setting;
  }
  return claim;
}

Result<void> Claims::put(const v1::Claim& claim) {
  const std::lock_guard lock(mutex_);
  if (doubted_ == claim.uid()) confirmed_ = true;
  auto vrdmad = api::Client::connect(places_.run_dir);
  if (!vrdmad) return base::pass(std::move(vrdmad).error());
  if (auto put = vrdmad->put_claim(claim); !put) return base::pass(std::move(put).error());
  if (auto written = write_file(claim); !written) return base::pass(std::move(written).error());
  return {};
}

kubelet::NodePrepareResourceResponse Claims::prepare(const ClaimName& name) {
  kubelet::NodePrepareResourceResponse answer;
  const auto refuse = [&](const base::Error& error) {
    ++counts_.refused;
    const std::string sentence = title_of(name) + ": " + error.message();
    base::log_warning(sentence);
    answer.set_error(sentence);
    return answer;
  };
  if (const auto valid = check_name(name); !valid) return refuse(valid.error());
  const auto devices = look_up(name);
  if (!devices) return refuse(devices.error());
  const auto claim = record_of(name, *devices);
  if (!claim) return refuse(claim.error());
  if (const auto done = put(*claim); !done) return refuse(done.error());
  for (const auto& device : *devices) {
    auto& prepared = *answer.add_devices();
    prepared.add_request_names(device.request);
    prepared.set_pool_name(places_.node);
    prepared.set_device_name(device.device);
    prepared.add_cdi_device_ids(std::string(kCdiClaimKind) + "=" +
                                claim_device(name.uid, device.share));
    if (device.has_share_id) prepared.set_share_id(device.share);
  }
  ++counts_.prepared;
  return answer;
}

kubelet::NodeUnprepareResourceResponse Claims::unprepare(const ClaimName& name) {
  kubelet::NodeUnprepareResourceResponse answer;
  if (!check_name(name)) return answer;  // nothing was prepared under such a name
  const auto try_it = [&] {
    const std::lock_guard lock(mutex_);
    return undo(name.uid);
  };
  auto done = try_it();
  for (int i = 1; i < kUndoTries && !done && done.error().code() == EBUSY; ++i) {
    std::this_thread::sleep_for(kUndoPause);
    done = try_it();
  }
  ++(done ? counts_.unprepared : counts_.held);
  if (!done) {
    answer.set_error(title_of(name) + ": " + done.error().message());
    base::log_warning(answer.error());
  }
  return answer;
}

// ---- vrdmad and files ---------------------------------------------------------------------------

// With the mutex. Whether it had to be written.
Result<bool> Claims::write_file(const v1::Claim& claim) {
  const std::string hook = [this] {
    const std::lock_guard lock(offered_mutex_);
    return hook_;
  }();
  if (hook.empty())
    return base::fail(EAGAIN, "the program of the hook is not known: run vrdmactl cdi generate");
  std::vector<std::string> shares;
  for (const auto& share : claim.shares()) shares.push_back(share.id());
  const std::string text = claim_specification({hook, places_.run_dir}, claim.uid(), shares);
  const std::string path = file_of(claim.uid());
  if (const auto now = read_text_file(path, kLargestFile); now && *now == text) return false;
  if (auto written = replace_file(path, text); !written)
    return base::pass(std::move(written).error());
  return true;
}

// With the mutex.
Result<void> Claims::undo(const std::string& uid) {
  auto vrdmad = api::Client::connect(places_.run_dir);
  if (!vrdmad) return base::pass(std::move(vrdmad).error());
  if (auto gone = vrdmad->delete_claim(uid); !gone) return base::pass(std::move(gone).error());
  if (::unlink(file_of(uid).c_str()) != 0 && errno != ENOENT && errno != ENOTDIR)
    return base::fail_errno("remove " + file_of(uid));
  return {};
}

// With the mutex.
void Claims::remove_strays(const std::vector<v1::Claim>& claims) {
  std::set<std::string> known;
  for (const auto& claim : claims) known.insert(claim.uid());
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(places_.cdi_dir, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const auto uid = uid_in(it->path().filename());
    if (uid && !known.contains(*uid) && ::unlink(it->path().c_str()) == 0)
      base::log_info("removed " + it->path().string() + ", of a claim that vrdmad does not have");
  }
}

Result<void> Claims::restore() {
  const std::lock_guard lock(mutex_);
  auto vrdmad = api::Client::connect(places_.run_dir);
  if (!vrdmad) return base::pass(std::move(vrdmad).error());
  const auto claims = vrdmad->list_claims();
  if (!claims) return base::pass(claims.error());
  remove_strays(*claims);
  for (const auto& claim : *claims) {
    const auto written = write_file(claim);
    if (!written) return base::pass(written.error());
    if (*written) {
      ++counts_.rewritten;
      base::log_info("wrote " + file_of(claim.uid()) + " again");
    }
  }
  return {};
}

Result<void> Claims::reconcile(const v1::Claim& claim) {
  const ClaimName name{claim.namespace_(), claim.name(), claim.uid()};
  const auto driver = claim.labels().find(kDriverLabel);
  if (driver == claim.labels().end() || driver->second != places_.driver || !check_name(name))
    return {};  // of another orchestrator
  {
    const std::lock_guard lock(mutex_);
    doubted_ = name.uid;
    confirmed_ = false;
  }
  const auto devices = look_up(name);
  Result<void> done;
  // Also if something in it is not understood: it was when it was prepared.
  if (!devices && devices.error().code() != EINVAL) done = base::pass(devices.error());
  const std::lock_guard lock(mutex_);
  doubted_.clear();
  if (devices && devices->empty() && !confirmed_) {
    done = undo(name.uid);
    if (done) {
      ++counts_.undone;
      base::log_info(title_of(name) + " is not of this node any more, and is undone");
    }
  }
  return done ? done : base::pass(done.error(), title_of(name));
}

Result<void> Claims::reconcile() {
  auto vrdmad = api::Client::connect(places_.run_dir);
  if (!vrdmad) return base::pass(std::move(vrdmad).error());
  const auto claims = vrdmad->list_claims();
  if (!claims) return base::pass(claims.error());
  Result<void> first;
  for (const auto& claim : *claims) {
    auto done = reconcile(claim);
    if (!done && done.error().code() == ECANCELED) return done;
    if (!done && first) first = std::move(done);
  }
  return first;
}

}  // namespace vrdma::cli::kubernetes
