#include "cli/node/runtime.h"

#include <cri.grpc.pb.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

namespace vrdma::cli::node {

using base::fail;
using base::Result;

namespace {

constexpr auto kDeadline = std::chrono::seconds(5);

// The member of that name, wherever it is: its place differs between versions of containerd.
const nlohmann::json* find(const nlohmann::json& in, std::string_view name) {
  if (!in.is_structured()) return nullptr;
  if (in.is_object())
    if (const auto its = in.find(name); its != in.end()) return &*its;
  for (const auto& [key, value] : in.items())
    if (const auto* const found = find(value, name)) return found;
  return nullptr;
}

bool is_of_version_1(const Answer& answer) {
  const std::string_view version = answer.version;
  return version.starts_with("1.") || version.starts_with("v1.");
}

std::string lines(const Answer& answer, const std::string& directory) {
  const bool old = is_of_version_1(answer);
  return "add these lines to /etc/containerd/config.toml, and restart containerd\n\n    "
         "[plugins.\"" +
         std::string(old ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime") +
         "\"]\n      enable_cdi = true\n      cdi_spec_dirs = [\"" + directory +
         "\", \"/var/run/cdi\"]\n";
}

}  // namespace

Result<Answer> ask_runtime(const std::string& socket) {
  const auto stub = runtime::v1::RuntimeService::NewStub(
      grpc::CreateChannel("unix://" + socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext one, other;
  for (auto* const context : {&one, &other})
    context->set_deadline(std::chrono::system_clock::now() + kDeadline);
  runtime::v1::VersionResponse version;
  runtime::v1::StatusResponse status;
  runtime::v1::StatusRequest request;
  request.set_verbose(true);
  auto answered = stub->Version(&one, {}, &version);
  if (answered.ok()) answered = stub->Status(&other, request, &status);
  if (answered.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return fail(ETIMEDOUT, "the container runtime does not answer on " + socket);
  if (!answered.ok())
    return fail(ECONNREFUSED, "no container runtime answers on " + socket + ": " +
                                  answered.error_message() + "; name its socket with --runtime");
  Answer answer{version.runtime_name(), version.runtime_version(), {}};
  if (const auto config = status.info().find("config"); config != status.info().end())
    answer.config = config->second;
  return answer;
}

Result<void> reads_cdi(const Answer& answer, const std::string& specification) {
  if (answer.name != "containerd") return {};  // CRI-O always does
  const std::string directory = specification.substr(0, specification.rfind('/'));
  const std::string who = answer.name + " " + answer.version;
  const auto config = nlohmann::json::parse(answer.config, nullptr, false);
  const auto* const enabled = find(config, "enableCDI");
  const bool is =
      enabled != nullptr && enabled->is_boolean() ? enabled->get<bool>() : !is_of_version_1(answer);
  if (!is && enabled == nullptr)
    return fail(ENOTSUP, who + " knows no CDI specifications: use containerd 1.7 or later");
  if (!is)
    return fail(ENOTSUP, who + " does not read CDI specifications, by which pods get vdevices: " +
                             lines(answer, directory));
  const auto* const directories = find(config, "cdiSpecDirs");
  if (directories == nullptr || !directories->is_array()) return {};
  for (const auto& one : *directories)
    if (one.is_string() && one.get<std::string>() == directory) return {};
  return fail(ENOTSUP, who + " does not read CDI specifications in " + directory + ": " +
                           lines(answer, directory));
}

}  // namespace vrdma::cli::node
