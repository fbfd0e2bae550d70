// The portable image of a session of rdma_cm: what is accepted, and what is refused.
#include "vrdmad/records/cm_session_image.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

using qp1mux::CmIdRecord;
using qp1mux::CmIdState;

constexpr uint32_t kChannel = 1, kListener = 2 | ipc::kCmOwnHandle, kConnected = 3;
constexpr uint64_t kGuid = 77;

qp1mux::Endpoint* some_endpoint() { return reinterpret_cast<qp1mux::Endpoint*>(1); }

// A listener at all addresses, a connection, and their events.
CmSessionImage of_a_server() {
  CmSessionImage image;
  image.secret = {5, 6};
  image.numbers.handle = 3;
  image.numbers.event = 9;
  image.channels = {kChannel};
  CmIdRecord& listener = image.ids[kListener].record.id;
  listener.space = wire::PortSpace::kTcp;
  listener.state = CmIdState::kListening;
  listener.is_bound = true;
  listener.bound.space = wire::PortSpace::kTcp;
  listener.bound.port = listener.local.port = 7471;
  image.ids[kListener].record.channel = kChannel;
  image.ids[kListener].record.backlog = 16;
  CmSessionImage::Id& connected = image.ids[kConnected];
  connected.sgid_index = 1;
  connected.record.channel = kChannel;
  connected.record.node_guid = kGuid;
  CmIdRecord& id = connected.record.id;
  id.space = wire::PortSpace::kTcp;
  id.state = CmIdState::kConnecting;
  id.route.endpoint = some_endpoint();
  id.connection.state = qp1mux::State::kRepSent;
  id.connection.local_id = 4711;
  id.connection.remote_id = 4712;
  id.connection.max_retries = 15;
  (void)wire::begin<wire::CmRep>(id.connection.sent, 1);
  ipc::CmEventMessage event;
  event.type = static_cast<uint32_t>(qp1mux::CmEventType::kConnectRequest);
  event.handle = kListener;
  event.request = kConnected;
  event.sequence = 9;
  image.events = {event};
  image.vdevices = {{{kGuid - 1, kGuid}, "va"}};
  image.answer.sequence = 12;
  image.answer.handle = kListener;
  return image;
}

bool is_decoded(const CmSessionImage& image) {
  return CmSessionImage::decode(image.encode()).has_value();
}

template <class Change>
bool is_refused_with(const Change& change) {
  CmSessionImage image = of_a_server();
  change(image);
  return !is_decoded(image);
}

TEST(CmSessionImage, IsWhatItWasAfterwards) {
  const CmSessionImage image = of_a_server();
  const auto bytes = image.encode();
  const auto decoded = CmSessionImage::decode(bytes);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->encode(), bytes);
  EXPECT_EQ(decoded->secret, image.secret);
  EXPECT_EQ(decoded->numbers.handle, 3u);
  EXPECT_EQ(decoded->numbers.event, 9u);
  EXPECT_EQ(decoded->channels, image.channels);
  ASSERT_EQ(decoded->ids.size(), 2u);
  EXPECT_EQ(decoded->ids.at(kListener).record.id.bound.port, 7471);
  EXPECT_EQ(decoded->ids.at(kConnected).record.id.connection.remote_id, 4712u);
  EXPECT_EQ(decoded->ids.at(kConnected).sgid_index, 1u);
  ASSERT_EQ(decoded->events.size(), 1u);
  EXPECT_EQ(decoded->events[0].request, kConnected);
  ASSERT_EQ(decoded->vdevices.size(), 1u);
  EXPECT_EQ(decoded->vdevices[0].is.known_as, kGuid - 1);
  EXPECT_EQ(decoded->vdevices[0].name, "va");
  EXPECT_EQ(decoded->answer.handle, kListener);
  // The corpus of the fuzz target is made by this:
  // VRDMA_IMAGE=tests/fuzz/corpus_cm_session_images/all
  if (const char* path = std::getenv("VRDMA_IMAGE"))
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

TEST(CmSessionImage, IsWhatAFileSays) {
  const TempDir temp;
  CmSessionFile::Who who{};
  who.secret = {5, 6};
  auto file = CmSessionFile::create(temp.path() + "/1.cm", who);
  ASSERT_TRUE(file) << file.error().message();
  CmSessionImage image = of_a_server();
  image.write_to(&*file);
  auto read = CmSessionImage::of(*file);
  ASSERT_TRUE(read) << read.error().message();
  read->vdevices[0].name = "va";         // which the file does not have
  read->ids[kConnected].sgid_index = 1;  // likewise
  EXPECT_EQ(read->encode(), image.encode());
}

TEST(CmSessionImage, IsRefusedIfItIsCutOffOrOfAnotherVersion) {
  const auto bytes = of_a_server().encode();
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(CmSessionImage::decode({bytes.data(), size})) << size;
  auto other = bytes;
  ++other[8];
  EXPECT_EQ(CmSessionImage::decode(other).error().code(), EPROTO);
  other = bytes;
  other.resize(CmSessionImage::kMostBytes + 8);
  EXPECT_EQ(CmSessionImage::decode(other).error().code(), EINVAL);
}

TEST(CmSessionImage, IsRefusedIfABitHasChanged) {
  auto bytes = of_a_server().encode();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto flip = static_cast<uint8_t>(1u << bit % 8);
    bytes[bit / 8] ^= flip;
    ASSERT_FALSE(CmSessionImage::decode(bytes)) << bit;
    bytes[bit / 8] ^= flip;
  }
  EXPECT_TRUE(CmSessionImage::decode(bytes));
}

TEST(CmSessionImage, IsRefusedIfAnIdCannotBe) {
  const auto with = [](uint32_t handle, auto change) {
    return is_refused_with([&](CmSessionImage& image) { change(image.ids.at(handle)); });
  };
  using Id = CmSessionImage::Id;
  EXPECT_FALSE(with(kConnected, [](Id&) {}));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.backlog = 1025; }));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.backlog = 1025; }));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.bound.port = 0; }));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.local.port = 22; })) << "not its own";
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.space = wire::PortSpace::kUdp; }));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.bound.address.bytes[0] = 1; }));
  EXPECT_TRUE(with(kListener, [](Id& id) { id.record.id.is_bound = false; }));
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.sgid_index = verbs::kMaxGids; }));
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.node_guid = 0; })) << "of no vdevice";
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.node_guid = 5; })) << "of an unknown one";
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.id.route.endpoint = nullptr; }));
  EXPECT_TRUE(with(kConnected, [](Id& id) {
    id.record.node_guid = 0;
    id.record.id.route.endpoint = nullptr;
  })) << "a connection without a vdevice";
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.id.connection.max_retries = 16; }));
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.id.connection.state = qp1mux::State(12); }));
  EXPECT_TRUE(with(kConnected, [](Id& id) { id.record.id.connection.sent = {}; }));
  EXPECT_TRUE(
      with(kConnected, [](Id& id) { id.record.id.connection.response = base::Duration::max(); }));
}

TEST(CmSessionImage, IsRefusedIfNumbersAreNotDistinctOrOutOfRange) {
  const auto refused = [](auto change) { return is_refused_with(change); };
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.channels.push_back(kChannel); }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.channels.push_back(0); }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.channels.push_back(kConnected); }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.channels.push_back(kListener + 1); }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.ids[0] = image.ids[kListener]; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.events.push_back(image.events[0]); }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.events[0].sequence = 0; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.events[0].type = 16; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.events[0].size = 8; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.events[0].param.length = 225; }));
  EXPECT_FALSE(refused([](CmSessionImage& image) { image.events[0].type = ipc::kCmNudge; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.vdevices[0].is.known_as = 0; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.vdevices[0].is.node_guid = 0; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) {
    image.vdevices.push_back({{kGuid - 1, kGuid + 1}, "vb"});
  })) << "known by the same GUID";
  EXPECT_TRUE(refused([](CmSessionImage& image) {
    image.vdevices.push_back({{kGuid + 1, kGuid}, "vb"});
  })) << "with the same GUID";
  EXPECT_TRUE(refused([](CmSessionImage& image) {
    for (uint64_t guid = 100; image.vdevices.size() <= CmSessionImage::kMostVdevices; ++guid)
      image.vdevices.push_back({{guid, guid}, "v"});
  }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.answer.size = 8; }));
  EXPECT_TRUE(refused([](CmSessionImage& image) { image.answer.magic = 0; }));
}

}  // namespace
}  // namespace vrdma::vrdmad
