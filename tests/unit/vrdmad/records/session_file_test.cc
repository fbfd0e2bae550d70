#include "vrdmad/records/session_file.h"

#include <fcntl.h>

#include <filesystem>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

using Kind = SessionFile::Kind;

std::unique_ptr<SessionFile> made(const std::string& path) {
  auto file = SessionFile::create(path);
  EXPECT_TRUE(file) << file.error().message();
  if (!file) return nullptr;
  (*file)->begin();
  return std::move(*file);
}
// As the next daemon does after its owner was killed.
std::unique_ptr<SessionFile> reopened(std::unique_ptr<SessionFile> file, const std::string& path) {
  file->keep();
  file.reset();
  auto again = SessionFile::open(base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)));
  EXPECT_TRUE(again) << again.error().message();
  return again ? std::move(*again) : nullptr;
}
void put(SessionFile& file, Kind kind, uint32_t number, const std::string& text,
         uint32_t sequence = 0) {
  file.put(kind, number, text.data(), text.size(), sequence);
}
std::string all(const SessionFile& file, Kind kind) {
  std::string text;
  for (const auto& record : file.all(kind))
    text += std::to_string(record.number) + "=" +
            std::string(reinterpret_cast<const char*>(record.data), record.size) +
            (file.is_answered(record) ? " " : "? ");
  return text;
}

// For another host: what the image has is in the new file, and nothing else.
TEST(SessionFile, is_restored_from_its_image) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session", copy = temp.path() + "/8.session";
  auto file = made(path);
  const auto put_pd = [&](uint32_t handle, uint32_t sequence) {
    const ipc::HandleReply reply{handle};
    file->put(Kind::kPd, handle, &reply, sizeof reply, sequence);
  };
  ipc::Reply reply;
  reply.handle.handle = 5;
  reply.sequence = 11;
  file->set_begun(11);
  put_pd(5, 11);
  file->set_answered(reply);
  file->set_begun(12);
  put_pd(6, 12);
  const auto image = file->image();
  const auto in_file = SessionFile::image_in(path);
  ASSERT_TRUE(in_file) << in_file.error().message();
  EXPECT_EQ(*in_file, image);
  auto again = made(copy);
  again->restore(image);
  again = reopened(std::move(again), copy);
  EXPECT_EQ(again->image(), image);
  EXPECT_EQ(again->last().begun, 12U);
  EXPECT_EQ(again->last().reply.handle.handle, 5U);
  EXPECT_TRUE(again->is_answered(*again->find(Kind::kPd, 5)));
  EXPECT_FALSE(again->is_answered(*again->find(Kind::kPd, 6)));
}

TEST(SessionFile, has_no_image_that_is_damaged_or_too_large) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session";
  auto file = made(path);
  put(*file, Kind::kPd, 5, "no reply");
  EXPECT_EQ(SessionFile::image_in(path).error().code(), EINVAL);
  file->erase(Kind::kPd, 5);
  EXPECT_TRUE(SessionFile::image_in(path));
  const std::string large(256, 'x');
  for (uint32_t i = 0; i < SessionFile::kMostImage / 256; ++i)
    file->put_later(Kind::kNote, i + 64, large.data(), large.size());
  file->commit();
  EXPECT_FALSE(SessionFile::image_in(path));
  EXPECT_EQ(SessionFile::image_in(temp.path() + "/9.session").error().code(), ENOENT);
}

TEST(SessionFile, tells_what_was_made_but_not_answered) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session";
  auto file = made(path);
  ipc::Reply reply;
  reply.handle.handle = 5;
  reply.sequence = 11;
  file->set_begun(11);
  put(*file, Kind::kPd, 5, "answered", 11);
  file->set_answered(reply);
  file->set_begun(13);
  put(*file, Kind::kPd, 6, "not answered", 13);
  file = reopened(std::move(file), path);
  EXPECT_EQ(all(*file, Kind::kPd), "5=answered 6=not answered? ");
  EXPECT_EQ(file->last().begun, 13U);
  EXPECT_EQ(file->last().reply.sequence, 11U);
  EXPECT_EQ(file->last().reply.handle.handle, 5U);
}

TEST(SessionFile, tells_whether_the_session_is_open) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session";
  auto file = SessionFile::create(path).value();
  EXPECT_FALSE(file->is_open());
  file->begin();
  file = reopened(std::move(file), path);
  EXPECT_TRUE(file->is_open());
  file->end();
  EXPECT_FALSE(reopened(std::move(file), path)->is_open());
}

TEST(SessionFile, tells_why_nobody_can_have_it) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session";
  auto file = made(path);
  EXPECT_EQ(file->forbidden(), "");
  file->forbid("the first reason");
  file->forbid("another");
  EXPECT_EQ(reopened(std::move(file), path)->forbidden(), "the first reason");
}

TEST(SessionFile, refuses_what_is_none) {
  const TempDir temp;
  const std::string path = temp.path() + "/7.session";
  EXPECT_FALSE(SessionFile::open(path));
  made(path)->keep();
  EXPECT_FALSE(SessionFile::create(path)) << "a file of that name exists";
  std::filesystem::resize_file(path, 100);
  EXPECT_FALSE(SessionFile::open(path));
}

}  // namespace
}  // namespace vrdma::vrdmad
