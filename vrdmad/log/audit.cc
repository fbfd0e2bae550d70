#include "vrdmad/log/audit.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>

#include "core/base/fd.h"
#include "core/base/printable.h"
#include "vrdmad/log/log.h"

namespace vrdma::vrdmad {

namespace {

base::Result<base::Fd> open_file(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return base::fail_errno("open the audit log " + path);
  return fd;
}

base::Result<void> append(const std::string& path, const std::string& line) {
  const auto fd = open_file(path);
  if (!fd) return base::pass(fd.error());
  const ssize_t written = ::write(fd->get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  const int error = written < 0 ? errno : ENOSPC;
  // A part of a line would spoil the next one.
  if (written > 0 && ::ftruncate(fd->get(), ::lseek(fd->get(), -written, SEEK_END)) != 0)
    return base::fail_errno("remove a part of a line from the audit log " + path);
  return base::fail_errno("write to the audit log " + path, error);
}

std::string sentence_of(const AuditRecord& record) {
  std::string text = "audit: uid " + std::to_string(record.who.uid) + " pid " +
                     std::to_string(record.who.pid) + " (" + record.who.program +
                     "): " + record.action;
  if (!record.object.empty()) text += " " + record.object;
  if (!record.arguments.empty()) text += " " + record.arguments;
  text += record.error == 0 ? ": done" : ": refused: " + record.sentence;
  return base::printable(text);
}

}  // namespace

base::Result<AuditSink> open_audit(const std::string& file) {
  if (!file.empty())
    if (auto opened = open_file(file); !opened) return base::pass(std::move(opened).error());
  return [file, mutex = std::make_shared<std::mutex>()](const AuditRecord& record) {
    LogFields fields{{"audit", record.action},
                     {"object", record.object},
                     {"arguments", record.arguments},
                     {"uid", int64_t{record.who.uid}},
                     {"pid", int64_t{record.who.pid}},
                     {"program", record.who.program},
                     {"result", record.error == 0 ? "done" : "refused"}};
    if (record.error != 0) {
      fields.emplace_back("errno", int64_t{record.error});
      fields.emplace_back("error", record.sentence);
    }
    const std::string sentence = sentence_of(record);
    const std::lock_guard lock(*mutex);  // same order in both logs
    log_fields(spdlog::level::info, sentence, fields);
    if (file.empty()) return;
    const std::string line = json_line(spdlog::log_clock::now(), "info", sentence, fields) + "\n";
    if (auto written = append(file, line); !written) spdlog::error("{}", written.error().message());
  };
}

}  // namespace vrdma::vrdmad
