// One row a device, as text or as JSON; both as iproute2 writes them, for scripts that read them.
#pragma once

#include <string>
#include <vector>

namespace vrdma::cli::rdma {

class Report {
 public:
  enum class Format { kText, kJson, kPretty };
  explicit Report(Format format) : format_(format) {}

  void begin_row();
  // "LABEL VALUE " in text, "NAME":VALUE in JSON. Left out if the value is empty.
  void text(const std::string& name, const std::string& value);
  void number(const std::string& name, const std::string& value);
  void list(const std::string& name, const std::vector<std::string>& values);  // in a line of text
  // In one of the two only.
  void in_text(const std::string& words) { text_ += is_json() ? "" : words; }
  void in_json(const std::string& name, const std::string& value, bool quoted);

  // All of it.
  [[nodiscard]] std::string str() const;

 private:
  [[nodiscard]] bool is_json() const { return format_ != Format::kText; }
  [[nodiscard]] bool pretty() const { return format_ == Format::kPretty; }

  Format format_;
  std::string text_;               // kText
  std::vector<std::string> rows_;  // JSON: members
};

}  // namespace vrdma::cli::rdma
