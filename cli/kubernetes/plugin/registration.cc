#include "cli/kubernetes/plugin/registration.h"

#include <algorithm>
#include <utility>

namespace vrdma::cli::kubernetes {

bool Registration::look(base::TimePoint now, const std::optional<serve::FileId>& kubelet,
                        const std::string& endpoint,
                        const std::function<Younger()>& look_for_younger) {
  if (calling_) return false;
  if (!kubelet || endpoint.empty()) {
    state_ = State::kAbsent;
    kubelet_.reset();
    return false;
  }
  if (kubelet != kubelet_ || endpoint != endpoint_) {
    kubelet_ = kubelet;
    endpoint_ = endpoint;
    accepted_ = hurried_ = false;
    next_ = now;
    why_ = "it is not registered with the kubelet yet";
    state_ = State::kTrying;
  }
  if (state_ == State::kTrying && now < next_) return false;
  Younger younger = look_for_younger();
  if (younger.listens) {
    state_ = State::kYielding;
    return false;
  }
  if (state_ == State::kRegistered) {
    if (std::includes(ended_.begin(), ended_.end(), younger.files.begin(), younger.files.end()))
      return false;
    // It will listen, or it has registered and ended since the last look.
    state_ = State::kYielding;
    next_ = now + kInterval;
    return false;
  }
  if (now < next_) return false;
  ended_ = std::move(younger.files);
  if (state_ == State::kYielding) why_ = "the younger instance has ended";
  state_ = State::kTrying;
  accepted_ = false;
  calling_ = true;
  return true;
}

void Registration::answered(base::TimePoint now, const std::string& refusal) {
  calling_ = false;
  next_ = now + kInterval;  // kubelet 1.20 opens the stream only after its answer
  accepted_ = refusal.empty();
  why_ = accepted_ ? "the kubelet has accepted it, but does not read its devices" : refusal;
  settle();
}

void Registration::stream_began(base::TimePoint now) {
  ++streams_;
  stream_since_ = now;
  settle();
}

void Registration::stream_ended(base::TimePoint now) {
  if (streams_ == 0 || --streams_ > 0) return;
  const bool was_long = now - stream_since_ >= kInterval;
  if (was_long || !hurried_) next_ = now;
  hurried_ = !was_long;
  if (state_ != State::kRegistered) return;
  state_ = State::kTrying;
  why_ = "the kubelet has ended its stream of devices";
}

void Registration::settle() {
  if (accepted_ && streams_ > 0) state_ = State::kRegistered;
}

std::optional<base::TimePoint> Registration::stream_since() const {
  if (streams_ == 0) return {};
  return stream_since_;
}

}  // namespace vrdma::cli::kubernetes
