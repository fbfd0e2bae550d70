#include "api/client.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <vrdma/v1/admin.grpc.pb.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>

#include "api/status.h"
#include "core/base/fd.h"

namespace vrdma::api {

namespace {

// A call waits for the daemon's control thread, which answers within milliseconds.
constexpr auto kDeadline = std::chrono::seconds(30);

// Connects without gRPC's resolver, so that the reason of a failure is exact and gRPC neither
// retries nor opens a second connection.
base::Result<base::Fd> connect_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, path + ": too long for a socket path");
  path.copy(address.sun_path, path.size());
  base::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return base::fail_errno("create a socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    switch (errno) {
      case ENOENT:
      case ENOTDIR:
      case ECONNREFUSED:
        return base::fail(ECONNREFUSED, "vrdmad is not running: nothing listens on " + path);
      case EACCES:
      case EPERM:
        return base::fail(EACCES, "root is needed: no permission to use " + path);
      default:
        return base::fail_errno("connect to " + path);
    }
  }
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0)  // gRPC requires it
    return base::fail_errno("make a socket non-blocking");
  return fd;
}

base::Error error_of(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto& trailer = context.GetServerTrailingMetadata();
  if (const auto it = trailer.find(kErrnoKey); it != trailer.end()) {
    int code = 0;
    const auto [end, error] = std::from_chars(it->second.begin(), it->second.end(), code);
    if (error == std::errc() && code > 0) return {code, status.error_message()};
  }
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {ECONNRESET, "vrdmad closed the connection: it stopped, or does not accept this user"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {ETIMEDOUT, "vrdmad did not answer in time"};
    default:
      break;
  }
  // gRPC's server says this if it has no thread for a call. Otherwise the code is permanent.
  if (status.error_message() == "Server Threadpool Exhausted")
    return {EAGAIN, "vrdmad is busy with too many calls: try again"};
  return {errno_of(status.error_code()),
          "vrdmad answered with an unknown error: " + status.error_message()};
}

void ignore_log(gpr_log_func_args*) {}

}  // namespace

std::string default_run_dir() {
  const char* dir = std::getenv("VRDMA_RUN_DIR");
  return dir != nullptr && *dir != '\0' ? dir : kDefaultRunDir;
}

struct Client::Connection {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Admin::Stub> stub;

  std::mutex mutex;  // guards the two below
  std::set<grpc::ClientContext*> watches;
  bool watches_end = false;

  // One unary call: `method` is a member of the stub.
  template <class Request, class Response>
  base::Result<Response> call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                              const Request& request) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    Response response;
    const grpc::Status status = ((*stub).*method)(&context, request, &response);
    if (!status.ok()) return base::pass(error_of(status, context));
    return response;
  }
};

Client::Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

base::Result<Client> Client::connect(const std::string& run_dir) {
  // gRPC's own log is only for those who request it; the sentence of a failed call says everything.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(ignore_log);
  auto fd = connect_socket(run_dir + "/admin.sock");
  if (!fd) return base::pass(std::move(fd).error());
  auto connection = std::make_unique<Connection>();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // unlimited: the daemon is trusted; lists may be long
  connection->channel = grpc::CreateCustomInsecureChannelFromFd("vrdmad", fd->release(), arguments);
  connection->stub = v1::Admin::NewStub(connection->channel);
  return Client(std::move(connection));
}

base::Result<v1::Vdev> Client::create_vdev(const v1::CreateVdevRequest& request) {
  return connection_->call(&v1::Admin::Stub::CreateVdev, request);
}

base::Result<void> Client::delete_vdev(const std::string& vdev) {
  v1::DeleteVdevRequest request;
  request.set_name(vdev);
  auto response = connection_->call(&v1::Admin::Stub::DeleteVdev, request);
  if (!response) return base::pass(std::move(response).error());
  return {};
}

base::Result<v1::Vdev> Client::get_vdev(const std::string& vdev, bool show_sysfs) {
  v1::GetVdevRequest request;
  request.set_name(vdev);
  request.set_show_sysfs(show_sysfs);
  return connection_->call(&v1::Admin::Stub::GetVdev, request);
}

base::Result<std::vector<v1::Vdev>> Client::list_vdevs() {
  auto response = connection_->call(&v1::Admin::Stub::ListVdevs, v1::ListVdevsRequest());
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->vdevs().begin(), response->vdevs().end());
}

base::Result<v1::Vdev> Client::set_quota(const v1::SetQuotaRequest& request) {
  return connection_->call(&v1::Admin::Stub::SetQuota, request);
}

base::Result<v1::Vdev> Client::set_labels(const v1::SetLabelsRequest& request) {
  return connection_->call(&v1::Admin::Stub::SetLabels, request);
}

base::Result<std::vector<v1::Parent>> Client::list_parents() {
  auto response = connection_->call(&v1::Admin::Stub::ListParents, v1::ListParentsRequest());
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->parents().begin(), response->parents().end());
}

base::Result<v1::Budget> Client::set_budget(const v1::SetBudgetRequest& request) {
  return connection_->call(&v1::Admin::Stub::SetBudget, request);
}

base::Result<std::vector<v1::Budget>> Client::list_budgets(v1::Scope scope) {
  v1::ListBudgetsRequest request;
  request.set_scope(scope);
  auto response = connection_->call(&v1::Admin::Stub::ListBudgets, request);
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->budgets().begin(), response->budgets().end());
}

base::Result<v1::Fabric> Client::set_fabric(const v1::SetFabricRequest& request) {
  return connection_->call(&v1::Admin::Stub::SetFabric, request);
}

base::Result<std::vector<v1::Fabric>> Client::list_fabrics() {
  auto response = connection_->call(&v1::Admin::Stub::ListFabrics, v1::ListFabricsRequest());
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->fabrics().begin(), response->fabrics().end());
}

base::Result<std::vector<v1::CgroupUse>> Client::list_cgroups(const std::string& vdev) {
  v1::ListCgroupsRequest request;
  request.set_vdev(vdev);
  auto response = connection_->call(&v1::Admin::Stub::ListCgroups, request);
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->uses().begin(), response->uses().end());
}

base::Result<std::vector<v1::Counter>> Client::counters(const std::string& scope) {
  v1::CountersRequest request;
  request.set_scope(scope);
  auto response = connection_->call(&v1::Admin::Stub::Counters, request);
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->counters().begin(), response->counters().end());
}

base::Result<v1::ListActivityResponse> Client::list_activity() {
  return connection_->call(&v1::Admin::Stub::ListActivity, v1::ListActivityRequest());
}

namespace {

// All that a call streams.
template <class T>
base::Result<std::vector<T>> read_all(grpc::ClientContext& context,
                                      const std::unique_ptr<grpc::ClientReader<T>>& reader) {
  std::vector<T> all;
  T one;
  while (reader->Read(&one)) all.push_back(std::move(one));
  if (const grpc::Status status = reader->Finish(); !status.ok())
    return base::pass(error_of(status, context));
  return all;
}

}  // namespace

base::Result<std::vector<v1::Connection>> Client::list_connections(const std::string& vdev) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  v1::ListConnectionsRequest request;
  request.set_vdev(vdev);
  return read_all(context, connection_->stub->ListConnections(&context, request));
}

base::Result<std::vector<v1::QueuePair>> Client::list_queue_pairs(const std::string& vdev) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  v1::ListQueuePairsRequest request;
  request.set_vdev(vdev);
  return read_all(context, connection_->stub->ListQueuePairs(&context, request));
}

base::Result<std::vector<v1::Export>> Client::list_exports(const std::string& vdev) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  v1::ListExportsRequest request;
  request.set_vdev(vdev);
  return read_all(context, connection_->stub->ListExports(&context, request));
}

base::Result<v1::Claim> Client::put_claim(const v1::Claim& claim) {
  v1::PutClaimRequest request;
  *request.mutable_claim() = claim;
  return connection_->call(&v1::Admin::Stub::PutClaim, request);
}

base::Result<v1::ParkedProcess> Client::park_process(int32_t pid) {
  v1::ParkProcessRequest request;
  request.set_pid(pid);
  return connection_->call(&v1::Admin::Stub::ParkProcess, request);
}

namespace {

base::Result<void> result_of(const base::Result<v1::ParkedProcessResponse>& response) {
  if (!response) return base::pass(response.error());
  return {};
}

v1::ParkedProcessRequest naming(const std::string& process) {
  v1::ParkedProcessRequest request;
  request.set_process(process);
  return request;
}

}  // namespace

base::Result<v1::ParkedProcess> Client::parked_process(const std::string& process) {
  return connection_->call(&v1::Admin::Stub::GetParkedProcess, naming(process));
}

base::Result<void> Client::detach_process(const std::string& process) {
  return result_of(connection_->call(&v1::Admin::Stub::DetachProcess, naming(process)));
}

base::Result<void> Client::resume_process(const std::string& process) {
  return result_of(connection_->call(&v1::Admin::Stub::ResumeProcess, naming(process)));
}

base::Result<void> Client::abandon_process(const std::string& process) {
  return result_of(connection_->call(&v1::Admin::Stub::AbandonProcess, naming(process)));
}

base::Result<v1::ParkedProcess> Client::place_process(const v1::ParkedProcess& process) {
  return connection_->call(&v1::Admin::Stub::PlaceProcess, process);
}

base::Result<void> Client::attach_process(const v1::ParkedProcess& process) {
  return result_of(connection_->call(&v1::Admin::Stub::AttachProcess, process));
}

base::Result<void> Client::delete_claim(const std::string& uid, bool force) {
  v1::DeleteClaimRequest request;
  request.set_uid(uid);
  request.set_force(force);
  if (auto response = connection_->call(&v1::Admin::Stub::DeleteClaim, request); !response)
    return base::pass(std::move(response).error());
  return {};
}

base::Result<std::vector<v1::Claim>> Client::list_claims() {
  auto response = connection_->call(&v1::Admin::Stub::ListClaims, v1::ListClaimsRequest());
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->claims().begin(), response->claims().end());
}

base::Result<v1::VersionResponse> Client::version() {
  return connection_->call(&v1::Admin::Stub::Version, v1::VersionRequest());
}

base::Result<std::vector<v1::Class>> Client::list_classes() {
  auto response = connection_->call(&v1::Admin::Stub::ListClasses, v1::ListClassesRequest());
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->classes().begin(), response->classes().end());
}

// `start` begins the stream in a context.
template <class Message, class Start>
base::Result<void> Client::watch(const Start& start,
                                 const std::function<bool(const Message&)>& on_message,
                                 const std::function<void()>& on_begun, Deadline deadline) {
  grpc::ClientContext context;
  if (deadline) context.set_deadline(*deadline);
  {
    const std::lock_guard lock(connection_->mutex);
    if (connection_->watches_end) return {};
    connection_->watches.insert(&context);
  }
  auto reader = start(&context);
  reader->WaitForInitialMetadata();  // if it fails, Read() fails too
  if (on_begun) on_begun();
  Message message;
  bool wanted = true;
  while (wanted && reader->Read(&message)) wanted = on_message(message);
  if (!wanted) {
    context.TryCancel();
    while (reader->Read(&message)) {
    }
  }
  const grpc::Status status = reader->Finish();
  const std::lock_guard lock(connection_->mutex);
  connection_->watches.erase(&context);
  if (!wanted || connection_->watches_end) return {};
  if (status.ok()) return base::fail(ECONNRESET, "vrdmad ended the watch");
  return base::pass(error_of(status, context));
}

base::Result<void> Client::watch_vdevs(const OnEvent& on_event,
                                       const std::function<void()>& on_begun, Deadline deadline) {
  return watch<v1::WatchEvent>(
      [this](grpc::ClientContext* context) {
        return connection_->stub->WatchVdevs(context, v1::WatchVdevsRequest());
      },
      on_event, on_begun, deadline);
}

base::Result<std::vector<v1::Event>> Client::list_events(int64_t since_ms, uint32_t most) {
  v1::ListEventsRequest request;
  request.set_since_ms(since_ms);
  request.set_most(most);
  auto response = connection_->call(&v1::Admin::Stub::ListEvents, request);
  if (!response) return base::pass(std::move(response).error());
  return std::vector(response->events().begin(), response->events().end());
}

base::Result<void> Client::watch_events(int64_t since_ms,
                                        const std::function<bool(const v1::Event&)>& on_event) {
  v1::ListEventsRequest request;
  request.set_since_ms(since_ms);
  return watch<v1::Event>(
      [&](grpc::ClientContext* context) {
        return connection_->stub->WatchEvents(context, request);
      },
      on_event, {});
}

base::Result<void> Client::watch_classes(const OnClasses& on_classes) {
  return watch<v1::ListClassesResponse>(
      [this](grpc::ClientContext* context) {
        return connection_->stub->WatchClasses(context, v1::ListClassesRequest());
      },
      on_classes, {});
}

void Client::end_watch() {
  const std::lock_guard lock(connection_->mutex);
  connection_->watches_end = true;
  for (grpc::ClientContext* context : connection_->watches) context->TryCancel();
}

}  // namespace vrdma::api
