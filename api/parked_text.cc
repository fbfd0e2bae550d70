#include "api/parked_text.h"

#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/base/hex.h"

namespace vrdma::api {

namespace {

using Json = nlohmann::ordered_json;  // fields in the order of the proto

std::string image_in(const Json& json) {
  auto image = base::bytes_of_hex(json.at("image").get<std::string>());
  if (!image) throw std::invalid_argument("an image is not hexadecimal");
  return std::move(*image);
}

Json json_of(const v1::ParkedSession& one) {
  Json channels = Json::object();
  for (const auto& [handle, inode] : std::map(one.channels().begin(), one.channels().end()))
    channels[std::to_string(handle)] = inode;
  Json json{{"number", one.number()}, {"vdev", one.vdev()},     {"vdev_id", one.vdev_id()},
            {"netns", one.netns()},   {"socket", one.socket()}, {"arena", one.arena()},
            {"bells", one.bells()},   {"memory", one.memory()}, {"doorbell", one.doorbell()},
            {"events", one.events()}, {"channels", channels},   {"pid", one.pid()},
            {"away", one.away()}};
  if (!one.image().empty()) {
    json["image"] = base::hex_of(one.image());
    json["gids"] = one.gids();
    json["known_as"] = one.known_as();
  }
  return json;
}

}  // namespace

std::string text_of(const v1::ParkedProcess& process) {
  Json sessions = Json::array(), peers = Json::array();
  for (const auto& one : process.sessions()) sessions.push_back(json_of(one));
  for (const auto& one : process.peers()) peers.push_back(json_of(one));
  Json connections = Json::array();
  for (const auto& one : process.connections()) {
    connections.push_back({{"socket", one.socket()}, {"channels", one.channels()}});
    if (!one.image().empty()) connections.back()["image"] = base::hex_of(one.image());
  }
  return Json{{"pid", process.pid()},
              {"token", process.token()},
              {"sessions", sessions},
              {"connections", connections},
              {"peers", peers}}
      .dump(2);
}

base::Result<v1::ParkedProcess> parked_process_of(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    v1::ParkedProcess process;
    process.set_pid(json.at("pid").get<int32_t>());
    process.set_token(json.at("token").get<std::string>());
    for (const Json& one : json.at("sessions")) {
      auto& session = *process.add_sessions();
      session.set_number(one.at("number").get<uint32_t>());
      session.set_arena(one.at("arena").get<uint64_t>());
      session.set_bells(one.at("bells").get<uint64_t>());
      session.set_memory(one.at("memory").get<uint64_t>());
      session.set_doorbell(one.at("doorbell").get<uint64_t>());
      session.set_events(one.at("events").get<uint64_t>());
      for (const auto& [handle, inode] : one.at("channels").items())
        session.mutable_channels()->insert(
            {static_cast<uint32_t>(std::stoul(handle)), inode.get<uint64_t>()});
      if (!one.contains("image")) continue;
      session.set_vdev(one.at("vdev").get<std::string>());
      session.set_image(image_in(one));
      for (const Json& gid : one.at("gids")) session.add_gids(gid.get<std::string>());
      session.set_known_as(one.at("known_as").get<uint32_t>());
    }
    if (!json.contains("connections")) return process;
    for (const Json& one : json.at("connections")) {
      auto& connections = *process.add_connections();
      if (one.contains("image")) connections.set_image(image_in(one));
    }
    return process;
  } catch (const std::exception& error) {
    return base::fail(
        EINVAL,
        std::string("this is not what 'vrdmactl checkpoint park -j' prints: ") + error.what());
  }
}

}  // namespace vrdma::api
