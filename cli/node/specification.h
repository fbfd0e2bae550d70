// The CDI specification of the node (cli/cdi.h), which names each class of vdevices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/classes.h"
#include "cli/cdi.h"
#include "core/base/error.h"

namespace vrdma::cli::node {

class Specification {
 public:
  // `path`: where this process sees the file.
  Specification(std::string path, CdiHook hook, const std::string& classes)
      : path_(std::move(path)), hook_(std::move(hook)), classes_(classes) {}

  // Writes the file if it is not there or names other classes. A class with a mistake is left out;
  // a file of classes that cannot be read changes nothing. The sentences are for the log: of the
  // mistakes, each until it changes, and of what was written.
  [[nodiscard]] base::Result<std::vector<std::string>> update();
  // Removes the file, if it is one of vrdma's.
  [[nodiscard]] base::Result<void> remove() const;

 private:
  const std::string path_;
  const CdiHook hook_;
  api::ClassFile classes_;
  std::map<std::string, std::string> told_;  // mistakes by class; "": of the file
};

}  // namespace vrdma::cli::node
