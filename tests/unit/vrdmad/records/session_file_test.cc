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
