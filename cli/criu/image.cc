#include "cli/criu/image.h"

#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/hex.h"

namespace vrdma::cli::criu {

using Json = nlohmann::ordered_json;

namespace {

constexpr int kVersion = 3;

struct Unusable {
  std::string reason;
};

Json hex_of(const std::vector<std::string>& messages) {
  Json texts = Json::array();
  for (const std::string& message : messages) texts.push_back(base::hex_of(message));
  return texts;
}

std::string bytes_of(const std::string& hex) {
  if (hex.size() > 2 * Image::kMostMessage) throw Unusable{"a message is too long"};
  auto bytes = base::bytes_of_hex(hex);
  if (!bytes) throw Unusable{"a message is not hexadecimal"};
  return std::move(*bytes);
}

const Json& list_of(const Json& object, const char* name) {
  const Json& list = object.at(name);
  if (!list.is_array() || list.size() > Image::kMostEach)
    throw Unusable{std::string(name) + " is no list, or too long"};
  return list;
}

int64_t number_of(const Json& value, int64_t most) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > most)
    throw Unusable{"a number is out of range"};
  return value.get<int64_t>();
}

int descriptor_of(const Json& value) {
  constexpr int kMost = 1 << 30;  // no process has more
  return static_cast<int>(number_of(value, kMost));
}

std::vector<int> numbers_in(const Json& object, const char* name) {
  std::vector<int> numbers;
  for (const Json& one : list_of(object, name)) numbers.push_back(descriptor_of(one));
  if (numbers.empty()) throw Unusable{std::string(name) + " is empty"};
  return numbers;
}

std::vector<std::string> messages_in(const Json& object) {
  std::vector<std::string> messages;
  for (const Json& one : list_of(object, "messages"))
    messages.push_back(bytes_of(one.get<std::string>()));
  return messages;
}

EndPair ends_of(const Json& json) {
  EndPair ends;
  ends.session = static_cast<uint32_t>(number_of(json.at("session"), UINT32_MAX));
  ends.channel = static_cast<uint32_t>(number_of(json.at("channel"), UINT32_MAX));
  ends.reads = numbers_in(json, "reads");
  ends.writes = numbers_in(json, "writes");
  ends.read_flags = static_cast<int>(number_of(json.at("read_flags"), INT32_MAX));
  ends.write_flags = static_cast<int>(number_of(json.at("write_flags"), INT32_MAX));
  ends.room = static_cast<int>(number_of(json.at("room"), INT32_MAX));
  ends.messages = messages_in(json);
  return ends;
}

OfPeer::View view_of(const Json& json) {
  constexpr int64_t kMostAddress = int64_t{1} << 56;  // of a process
  constexpr uint64_t kPage = 4096;
  OfPeer::View view;
  view.what = static_cast<OfPeer::View::What>(number_of(json.at("what"), 2));
  view.address = static_cast<uint64_t>(number_of(json.at("address"), kMostAddress));
  view.length = static_cast<uint64_t>(number_of(json.at("length"), kMostAddress));
  view.offset = static_cast<uint64_t>(number_of(json.at("offset"), kMostAddress));
  view.protection = static_cast<int>(number_of(json.at("protection"), 3));
  if ((view.address | view.length | view.offset) % kPage != 0 || view.length == 0)
    throw Unusable{"a mapping is not of whole pages"};
  return view;
}

OfPeer peer_of(const Json& json) {
  OfPeer peer;
  peer.session = static_cast<uint32_t>(number_of(json.at("session"), UINT32_MAX));
  peer.memory_inode = json.at("memory_inode").get<uint64_t>();
  for (const Json& one : list_of(json, "views")) peer.views.push_back(view_of(one));
  for (const Json& one : list_of(json, "memory")) peer.memory.push_back(descriptor_of(one));
  for (const Json& one : list_of(json, "ends")) {
    auto& numbers = peer.ends[static_cast<uint32_t>(number_of(one.at("channel"), UINT32_MAX))];
    if (!numbers.empty()) throw Unusable{"a channel is there twice"};
    numbers = numbers_in(one, "numbers");
  }
  return peer;
}

Image image_of(const Json& json) {
  if (number_of(json.at("version"), INT32_MAX) != kVersion)
    throw Unusable{"it is of another version of vrdma"};
  Image image;
  image.token = json.at("token").get<std::string>();
  if (image.token.size() != 32 || !base::is_hex(image.token)) throw Unusable{"its token is none"};
  for (const Json& one : list_of(json, "sessions"))
    image.sessions.push_back({static_cast<uint32_t>(number_of(one.at("number"), UINT32_MAX)),
                              one.at("socket").get<std::string>(), descriptor_of(one.at("queues")),
                              descriptor_of(one.at("bells")), descriptor_of(one.at("doorbell")),
                              one.at("portable").get<std::string>()});
  for (const Json& one : list_of(json, "connections"))
    image.connections.push_back(one.get<std::string>());
  if (json.contains("carried"))  // not in images of earlier versions
    for (const Json& one : list_of(json, "carried"))
      image.carried.push_back(one.get<std::string>());
  if (!image.carried.empty() && image.carried.size() != image.connections.size())
    throw Unusable{"it has connections without their state"};
  if (image.sessions.empty() && image.connections.empty())
    throw Unusable{"it has neither sessions nor connections"};
  if (!image.sessions.empty()) image.memory = numbers_in(json, "memory");
  for (const Json& one : list_of(json, "ends")) image.ends.push_back(ends_of(one));
  for (const Json& one : list_of(json, "channels"))
    image.channels.push_back({numbers_in(one, "numbers"),
                              static_cast<int>(number_of(one.at("flags"), INT32_MAX)),
                              messages_in(one)});
  for (const Json& one : list_of(json, "epolls"))
    image.epolls.push_back({descriptor_of(one.at("epoll")), descriptor_of(one.at("number")),
                            static_cast<uint32_t>(number_of(one.at("events"), UINT32_MAX)),
                            one.at("data").get<uint64_t>()});
  image.had_peers = json.at("had_peers").get<bool>();
  for (const Json& one : list_of(json, "peers")) image.peers.push_back(peer_of(one));
  return image;
}

Json json_of(const OfPeer& peer) {
  Json views = Json::array(), ends = Json::array();
  for (const auto& one : peer.views)
    views.push_back({{"what", static_cast<int>(one.what)},
                     {"address", one.address},
                     {"length", one.length},
                     {"offset", one.offset},
                     {"protection", one.protection}});
  for (const auto& [channel, numbers] : peer.ends)
    ends.push_back({{"channel", channel}, {"numbers", numbers}});
  return {{"session", peer.session},
          {"memory_inode", peer.memory_inode},
          {"views", views},
          {"memory", peer.memory},
          {"ends", ends}};
}

}  // namespace

std::string Image::encode() const {
  Json all_sessions = Json::array(), all_ends = Json::array(), all_channels = Json::array(),
       all_epolls = Json::array(), all_peers = Json::array();
  for (const Session& one : sessions)
    all_sessions.push_back({{"number", one.number},
                            {"socket", one.socket},
                            {"queues", one.queues},
                            {"bells", one.bells},
                            {"doorbell", one.doorbell},
                            {"portable", one.portable}});
  for (const EndPair& one : ends)
    all_ends.push_back({{"session", one.session},
                        {"channel", one.channel},
                        {"reads", one.reads},
                        {"writes", one.writes},
                        {"read_flags", one.read_flags},
                        {"write_flags", one.write_flags},
                        {"room", one.room},
                        {"messages", hex_of(one.messages)}});
  for (const Channel& one : channels)
    all_channels.push_back(
        {{"numbers", one.numbers}, {"flags", one.flags}, {"messages", hex_of(one.messages)}});
  for (const EpollEntry& one : epolls)
    all_epolls.push_back(
        {{"epoll", one.epoll}, {"number", one.number}, {"events", one.events}, {"data", one.data}});
  for (const OfPeer& one : peers) all_peers.push_back(json_of(one));
  return Json{{"version", kVersion},        {"token", token},       {"sessions", all_sessions},
              {"connections", connections}, {"memory", memory},     {"ends", all_ends},
              {"channels", all_channels},   {"epolls", all_epolls}, {"had_peers", had_peers},
              {"peers", all_peers},         {"carried", carried}}
      .dump(1);
}

base::Result<Image> Image::decode(const std::string& bytes) {
  const auto unusable = [](const std::string& why) {
    return base::fail(EINVAL, "the image of its vdevices cannot be used: " + why);
  };
  if (bytes.size() > kMostBytes) return unusable("it is too large");
  try {
    return image_of(Json::parse(bytes));
  } catch (const Unusable& why) {
    return unusable(why.reason);
  } catch (const std::exception& error) {
    return unusable(error.what());
  }
}

}  // namespace vrdma::cli::criu
