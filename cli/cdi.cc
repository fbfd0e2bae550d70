#include "cli/cdi.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/hook/call.h"
#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

using base::Result;
using Json = nlohmann::ordered_json;

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

Json edits_of(const hook::HookCommand& command) {
  Json hooks = Json::array();
  for (const char* const stage : hook::kStages)
    hooks.push_back({{"hookName", stage},
                     {"path", command.program},
                     {"args", hook::arguments_of(command, stage)},
                     {"env", {hook::kEnvironment}},
                     {"timeout", hook::kTimeout}});
  return {{"hooks", hooks}};
}

Json device_of(const std::string& name, const hook::Wish& wish, const CdiHook& hook) {
  return {{"name", name}, {"containerEdits", edits_of({hook.program, wish, hook.run_dir})}};
}

// Before 0.5.0 the name of a device begins with a letter.
std::string text_of(const char* kind, bool only_letters_first, const Json& devices) {
  const Json specification = {
      {"cdiVersion", only_letters_first ? "0.3.0" : "0.5.0"}, {"kind", kind}, {"devices", devices}};
  return specification.dump(2) + "\n";
}

}  // namespace

Result<std::string> cdi_specification(const std::vector<std::string>& classes,
                                      const CdiHook& hook) {
  Json devices = Json::array();
  bool only_letters_first = true;
  for (const auto& name : classes) {
    if (name.empty() || !is_letter_or_digit(name.front()) || !is_letter_or_digit(name.back()))
      return base::fail(EINVAL, "class '" + name +
                                    "' can be no CDI device: its name must begin and end with a "
                                    "letter or a digit");
    only_letters_first = only_letters_first && is_letter(name.front());
    devices.push_back(device_of(name, {name, "", ""}, hook));
  }
  return text_of(kCdiKind, only_letters_first, devices);
}

std::string claim_device(const std::string& uid, const std::string& share) {
  return uid + "-" + share;
}

std::string claim_specification(const CdiHook& hook, const std::string& uid,
                                const std::vector<std::string>& shares) {
  Json devices = Json::array();
  for (const auto& share : shares)
    devices.push_back(device_of(claim_device(uid, share), {"", uid, share}, hook));
  return text_of(kCdiClaimKind, !uid.empty() && is_letter(uid.front()), devices);
}

Result<void> replace_file(const std::string& path, const std::string& text) {
  struct stat status {};
  if (path.empty() || (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)))
    return base::fail(EINVAL, "'" + path + "' is not a regular file; - is standard output");
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::error_code error;
  // An engine may not have made its own; another name may be misspelt.
  if (directory.filename() == "cdi") std::filesystem::create_directory(directory, error);
  if (error)
    return base::fail(error.value(), "make " + directory.string() + ": " + error.message());
  // Engines read only files that end in .json or .yaml.
  std::string fresh = path + ".XXXXXX";
  const base::Fd file(::mkostemp(fresh.data(), O_CLOEXEC));
  if (!file.valid()) return base::fail_errno("write " + path);
  if (::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fchmod(file.get(), 0644) == 0 && ::fsync(file.get()) == 0 &&
      ::rename(fresh.c_str(), path.c_str()) == 0)
    return {};
  const int code = errno;
  (void)::unlink(fresh.c_str());
  return base::fail_errno("write " + path, code);
}

}  // namespace vrdma::cli
