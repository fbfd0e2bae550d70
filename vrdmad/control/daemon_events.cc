// What operators may want to know later (event_log.h).
#include <algorithm>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

namespace {

constexpr size_t kContainerDigits = 12;  // as `vrdmactl vdev list` prints them

// As `vrdmactl vdev list` names it.
std::string who_has(const VdevSpec& spec) {
  const auto pod = label_value(spec, HookBackend::kPodNameLabel);
  if (!pod.empty()) return label_value(spec, HookBackend::kNamespaceLabel) + "/" + pod;
  return spec.containers.empty() ? "" : spec.containers[0].id.substr(0, kContainerDigits);
}

// A user may start containers without bound, and a namespace may have any number of pods, each with
// a tenant of its own. So they have one share each.
std::string share_of_user(const std::string& user) { return "user " + user; }
std::string share_of(const VdevSpec& spec, uint64_t id) {
  if (auto user = label_value(spec, HookBackend::kUserLabel); !user.empty())
    return share_of_user(user);
  if (auto pods = label_value(spec, HookBackend::kNamespaceLabel); !pods.empty())
    return "namespace " + pods;
  return "tenant " + tenant_of(spec, id);
}

// "16 GiB", "64"
std::string text_of_limit(provisioning::Kind kind, uint64_t limit) {
  const char* unit = "";
  if (provisioning::traits(kind).unit == provisioning::Unit::kBytes) {
    constexpr std::array kUnits{" bytes", " KiB", " MiB", " GiB", " TiB"};
    size_t power = 0;
    for (; power + 1 < kUnits.size() && limit > 0 && limit % 1024 == 0; ++power) limit /= 1024;
    unit = kUnits.at(power);
  }
  return std::to_string(limit) + unit;
}

}  // namespace

class Daemon::EventSubscription {
 public:
  EventSubscription(Daemon& daemon, std::shared_ptr<void> watch)
      : daemon_(daemon), watch_(std::move(watch)) {}
  ~EventSubscription() {
    daemon_.call([this] { watch_.reset(); });
  }
  EventSubscription(const EventSubscription&) = delete;
  EventSubscription& operator=(const EventSubscription&) = delete;

 private:
  Daemon& daemon_;
  std::shared_ptr<void> watch_;
};

void Daemon::note(const char* type, uint64_t id, const VdevSpec& spec, const std::string& reason,
                  int32_t pid, uint64_t count) {
  EventRow event;
  event.type = type;
  event.count = count;
  event.vdev = {id, spec.name, spec.netns};
  event.tenant = tenant_of(spec, id);
  event.who = who_has(spec);
  event.pid = pid;
  event.program = program_names_.of(pid);
  event.reason = reason;
  event.share = share_of(spec, id);
  events_.add(std::move(event));
}

void Daemon::note_worker(const std::string& domain, const std::string& reason) {
  EventRow event;
  event.type = "worker";
  constexpr std::string_view kTenant = "tenant/";  // domain_of()
  if (domain.starts_with(kTenant)) event.tenant = domain.substr(kTenant.size());
  event.reason = "the worker of " + domain + " " + reason;
  event.share = "worker " + domain;
  for (const auto& [id, record] : records_)
    if (record->domain == domain) event.share = share_of(record->spec, id);
  events_.add(std::move(event));
}

void Daemon::on_refused(const Record& record, const Refused& refused) {
  const std::string kind(provisioning::traits(refused.kind).name);
  const auto note_it = [&](const char* type, const std::string& reason) {
    note(type, record.id, record.spec, reason, refused.pid, refused.count);
  };
  switch (refused.why) {
    case Refused::Why::kQuota:
      return note_it("quota",
                     "more " + kind + " than the limit of " +
                         text_of_limit(refused.kind, of(record.allotment.limits(), refused.kind)));
    case Refused::Why::kCeiling:
      return note_it("quota", "more " + kind + " than a ceiling of its tenant or parent leaves");
    case Refused::Why::kIdentity:
      return note_it("identity", "the program did not prove what it is");
    case Refused::Why::kProtocol:
      return note_it("protocol", "the session ended because of what the program sent or wrote");
  }
}

void Daemon::refused(const std::string& container, uid_t user, const std::string& reason) {
  loop_.post([this, container, user, reason] {
    EventRow event;
    event.type = "hook";
    event.who = container.substr(0, kContainerDigits);
    event.reason = reason;
    event.tenant = event.share = share_of_user(std::to_string(user));
    events_.add(std::move(event));
  });
}

std::vector<EventRow> Daemon::list_events(EventRow::Time since, size_t most) {
  return call([&] { return events_.since(since, most); });
}

std::shared_ptr<void> Daemon::watch_events(EventRow::Time since, EventCallback callback) {
  return call([&]() -> std::shared_ptr<void> {
    for (const EventRow& event : events_.since(since)) callback(event);
    return std::make_shared<EventSubscription>(*this, events_.watch(std::move(callback)));
  });
}

}  // namespace vrdma::vrdmad
