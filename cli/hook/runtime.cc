#include "cli/hook/runtime.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "cli/hook/root.h"
#include "cli/hook/state.h"
#include "core/base/fd.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;

constexpr size_t kMostSettings = 65536;  // bytes

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

std::string unquoted(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// Global options of runc(8) and crun(1) whose value may be the next word.
bool takes_value(const std::string& word) {
  constexpr const char* kOptions[] = {"--log",  "--log-format", "--log-level",     "--root",
                                      "--criu", "--rootless",   "--cgroup-manager"};
  return std::find(std::begin(kOptions), std::end(kOptions), word) != std::end(kOptions);
}

// The value of `--name VALUE` or `--name=VALUE` at words[i], which then points to its last word.
Result<std::optional<std::string>> value_of(const std::vector<std::string>& words, size_t& i,
                                            const std::string& name) {
  if (words[i].starts_with(name + "=")) return words[i].substr(name.size() + 1);
  if (words[i] != name) return std::nullopt;
  if (i + 1 == words.size()) return base::fail(EINVAL, name + " has no value");
  return words[++i];
}

// Of the subcommand at words[i]. Empty: it creates no container.
Result<std::string> bundle_in(const std::vector<std::string>& words, size_t i) {
  constexpr const char* kCreates[] = {"create", "run", "restore"};
  if (i >= words.size() ||
      std::find(std::begin(kCreates), std::end(kCreates), words[i]) == std::end(kCreates))
    return std::string();
  std::string bundle = ".";
  for (++i; i < words.size(); ++i)
    for (const char* const name : {"--bundle", "-b"}) {
      auto value = value_of(words, i, name);
      if (!value) return base::pass(std::move(value).error());
      if (*value) bundle = **value;
    }
  return bundle;
}

// With the mode of the file that it replaces.
Result<void> replace_file(const std::string& path, const std::string& text) {
  struct stat before {};
  if (::stat(path.c_str(), &before) != 0) return base::fail_errno("open " + path);
  const std::string fresh = path + ".vrdma";
  (void)::unlink(fresh.c_str());
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() || ::fchmod(file.get(), before.st_mode & 07777U) != 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(fresh.c_str(), path.c_str()) != 0)
    return base::fail_errno("write " + path);
  return {};
}

Result<RuntimeSettings> read_settings(const std::string& path) {
  const auto text = read_file(path, kMostSettings);
  if (!text && text.error().code() == ENOENT && path == kRuntimeFile) return RuntimeSettings();
  if (!text) return base::pass(text.error());
  return parse_runtime_settings(*text, path);
}

Result<void> change_bundle(const std::string& bundle, const HookCommand& command) {
  const std::string path = bundle + "/config.json";
  const auto before = read_file(path, kMostConfig);
  if (!before) return base::pass(before.error());
  const auto after = add_hooks(*before, command);
  if (!after) return base::pass(after.error(), path);
  if (!*after) return {};
  return replace_file(path, **after);
}

}  // namespace

Result<RuntimeSettings> parse_runtime_settings(const std::string& text, const std::string& path) {
  RuntimeSettings settings;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string content = trimmed(line);
    if (content.empty() || content.front() == '#') continue;
    const size_t equals = content.find('=');
    const std::string key = trimmed(content.substr(0, equals));
    std::string* const into = key == "class"     ? &settings.device_class
                              : key == "runtime" ? &settings.runtime
                              : key == "run-dir" ? &settings.run_dir
                                                 : nullptr;
    const std::string where = path + ", line " + std::to_string(number) + ": ";
    if (into == nullptr)
      return base::fail(EINVAL, where + "'" + key + "' is none of class, runtime, run-dir");
    *into = equals == content.npos ? "" : unquoted(trimmed(content.substr(equals + 1)));
    if (into->empty()) return base::fail(EINVAL, where + key + " has no value");
  }
  return settings;
}

Result<RuntimeCall> parse_runtime_call(const std::vector<std::string>& words) {
  RuntimeCall call;
  size_t i = 0;
  for (; i < words.size() && words[i].starts_with('-'); ++i) {
    auto file = value_of(words, i, "--vrdma-config");
    auto device_class = file ? value_of(words, i, "--vrdma-class") : base::pass(file.error());
    if (!device_class) return base::pass(std::move(device_class).error());
    if (*file) {
      call.file = **file;
    } else if (*device_class) {
      call.device_class = **device_class;
    } else {
      call.words.push_back(words[i]);
      if (takes_value(words[i]) && i + 1 < words.size()) call.words.push_back(words[++i]);
    }
  }
  call.words.insert(call.words.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
  auto bundle = bundle_in(words, i);
  if (!bundle) return base::pass(std::move(bundle).error());
  call.bundle = std::move(*bundle);
  return call;
}

base::Error run_runtime(const std::vector<std::string>& words, const std::string& hook) {
  auto call = parse_runtime_call(words);
  if (!call) return std::move(call).error();
  const auto settings = read_settings(call->file);
  if (!settings) return settings.error();
  const auto& device_class =
      call->device_class.empty() ? settings->device_class : call->device_class;
  if (!call->bundle.empty())
    if (auto done = change_bundle(call->bundle, {hook, {device_class, "", ""}, settings->run_dir});
        !done)
      return std::move(done).error();
  std::vector<char*> arguments{const_cast<char*>(settings->runtime.c_str())};
  for (auto& word : call->words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return base::fail_errno("run " + settings->runtime).value();
}

}  // namespace vrdma::cli::hook
