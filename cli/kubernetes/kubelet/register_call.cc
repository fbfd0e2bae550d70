#include "cli/kubernetes/kubelet/register_call.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <kubelet/deviceplugin.grpc.pb.h>

#include <chrono>
#include <future>

#include "core/base/printable.h"
#include "core/serve/unix_path.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr auto kDeadline = std::chrono::seconds(5);

std::string refusal_of(const grpc::Status& status) {
  if (status.ok()) return {};
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return "the kubelet has not answered for 5 s";
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
    return "the kubelet has closed the connection";
  return "the kubelet refuses it: " + base::printable(status.error_message());
}

}  // namespace

struct RegisterCall::Call {
  Answered answered;
  bool wanted = true;  // of the loop's thread
  std::promise<void> over;
  grpc::ClientContext context;
  v1beta1::RegisterRequest request;
  v1beta1::Empty response;
  std::unique_ptr<v1beta1::Registration::Stub> stub;
};

RegisterCall::RegisterCall(base::EventLoop& loop, const std::string& socket,
                           const std::string& endpoint, const std::string& resource,
                           Answered answered)
    : call_(std::make_shared<Call>()) {
  call_->answered = std::move(answered);
  // Without gRPC's resolver, so that it neither retries nor waits for a listener.
  auto connection = serve::connect_to(socket);
  if (!connection) {
    call_->over.set_value();
    loop.post([call = call_, why = connection.error().message()] {
      if (call->wanted) call->answered(why);
    });
    return;
  }
  call_->request.set_version("v1beta1");
  call_->request.set_endpoint(endpoint);
  call_->request.set_resource_name(resource);
  call_->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  call_->stub = v1beta1::Registration::NewStub(
      grpc::CreateInsecureChannelFromFd("localhost", connection->release()));
  call_->stub->async()->Register(&call_->context, &call_->request, &call_->response,
                                 [&loop, call = call_](const grpc::Status& status) {
                                   loop.post([call, refusal = refusal_of(status)] {
                                     if (call->wanted) call->answered(refusal);
                                   });
                                   call->over.set_value();  // last: the loop may end now
                                 });
}

RegisterCall::~RegisterCall() {
  call_->wanted = false;
  call_->context.TryCancel();
  call_->over.get_future().wait();
}

}  // namespace vrdma::cli::kubernetes
