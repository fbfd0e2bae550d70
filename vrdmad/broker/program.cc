#include "vrdmad/broker/program.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

// Whether only root can change the file.
bool is_safe(const struct stat& status) {
  return status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Result<Fd> open(const std::string& path, struct stat* status) {
  Fd program(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!program.valid() || ::fstat(program.get(), status) != 0)
    return fail_errno("open the program " + path);
  if (!S_ISREG(status->st_mode)) return fail(EACCES, path + " is not a program");
  return program;
}

}  // namespace

Result<Fd> open_program(const std::string& name, std::string* risk) {
  std::error_code error;
  const auto own_path = std::filesystem::read_symlink("/proc/self/exe", error);
  struct stat own {};
  if (error || ::stat("/proc/self/exe", &own) != 0) return fail_errno("find this program");
  const std::string beside = own_path.parent_path() / name;
  const std::string installed = own_path.parent_path() / ".." / "lib" / "vrdma" / name;
  for (const std::string& path : {beside, installed}) {
    struct stat status {};
    auto program = open(path, &status);
    if (!program && program.error().code() == ENOENT) continue;
    if (!program || is_safe(status)) return program;
    if (is_safe(own)) return fail(EPERM, "other users than root can change the program " + path);
    if (risk != nullptr)
      *risk = "other users than root can change " + own_path.string() + " and " + path;
    return program;
  }
  return fail(ENOENT, "a program is missing: " + beside + " or " + installed);
}

Result<Fd> open_program_at(const std::string& path) {
  struct stat status {};
  return open(path, &status);
}

}  // namespace vrdma::vrdmad
