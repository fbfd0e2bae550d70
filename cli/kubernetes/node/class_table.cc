#include "cli/kubernetes/node/class_table.h"

#include "core/base/log.h"
#include "core/base/name.h"

namespace vrdma::cli::kubernetes {

void ClassTable::received(const v1::ListClassesResponse& classes) {
  if (!unreachable_.empty()) base::log_info("vrdmad describes its classes");
  unreachable_.clear();
  for (auto& [name, news] : all_) {
    news.unreachable.clear();
    news.file_error = classes.error();
    news.in_file = false;
  }
  for (const auto& each : classes.classes()) {
    if (!base::is_name(each.name())) continue;
    ClassNews& news = all_[each.name()];
    v1::Class last = each;
    // A mistake takes no device from the node: the kubelet would fail pods that have one.
    if (!each.error().empty() && news.last.devices() > 0) {
      last = news.last;
      last.set_error(each.error());
      last.set_given(each.given());
    }
    news = {"", classes.error(), true, last};
  }
}

void ClassTable::lost(const std::string& why) {
  base::log_warning(why);
  unreachable_ = why;
  for (auto& [name, news] : all_) news.unreachable = why;
}

}  // namespace vrdma::cli::kubernetes
