// One call of Register to the kubelet, which blocks no thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/event_loop.h"

namespace vrdma::cli::kubernetes {

class RegisterCall {
 public:
  // Calls `answered` once on `loop`, unless the call is destroyed before: with the reason of a
  // failure, which may be that the kubelet has not answered for 5 s, or with an empty text.
  using Answered = std::function<void(const std::string& refusal)>;

  // `socket`: the path of kubelet.sock; `endpoint`: the file name of the plugin's socket.
  RegisterCall(base::EventLoop& loop, const std::string& socket, const std::string& endpoint,
               const std::string& resource, Answered answered);
  RegisterCall(const RegisterCall&) = delete;
  RegisterCall& operator=(const RegisterCall&) = delete;
  ~RegisterCall();  // cancels the call

 private:
  struct Call;
  std::shared_ptr<Call> call_;
};

}  // namespace vrdma::cli::kubernetes
