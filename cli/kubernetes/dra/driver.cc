#include "cli/kubernetes/dra/driver.h"

#include <chrono>
#include <filesystem>

#include "cli/kubernetes/plugin/names.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/base/random.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr auto kLookInterval = std::chrono::seconds(1);
// Health is sent again before the kubelet takes it for outdated.
constexpr auto kHealthInterval = std::chrono::seconds(20);
constexpr int64_t kHealthTimeout = 60;
constexpr size_t kMostOfHealth = 1024, kMostOfStem = 40;

}  // namespace

Driver::Driver(base::EventLoop& loop, const Places& places)
    : loop_(loop),
      places_(places),
      registry_(places.kubelet_root + "/plugins_registry"),
      directory_(places.kubelet_root + "/plugins/" + places.domain),
      cdi_(places.cdi),
      server_(places.api),
      claims_(server_, {places.run_dir, places.claims_dir, places.domain, places.node}) {}

base::Result<std::unique_ptr<Driver>> Driver::start(base::EventLoop& loop, const Places& places) {
  std::unique_ptr<Driver> made(new Driver(loop, places));
  auto* const raw = made.get();
  auto service = DraService::start(
      made->claims_, places.domain,
      [&loop, raw, alive = std::weak_ptr(made->alive_)](const std::string& refusal) {
        loop.post([=] {
          if (!alive.expired()) raw->on_registered(refusal);
        });
      });
  if (!service) return base::pass(std::move(service).error());
  made->service_ = std::move(*service);
  auto files =
      DirectoryWatch::open(loop, places.claims_dir, [raw] { raw->claim_keeper_->files_changed(); });
  if (!files) return base::pass(std::move(files).error());
  made->claim_files_ = std::move(*files);
  made->update();  // the hook is known before claims are looked at
  made->slice_keeper_ = std::make_unique<SliceKeeper>(made->server_, places.domain, places.node);
  made->claim_keeper_ = std::make_unique<ClaimKeeper>(made->claims_);
  made->watch_ = std::make_unique<ClassWatch>(
      loop, places.run_dir,
      [raw](const auto& classes) {
        raw->classes_.received(classes);
        raw->update();
      },
      [raw](const std::string& why) {
        raw->classes_.lost(why);
        raw->update();
      });
  made->tick();
  return made;
}

// The keepers wait for the API server.
Driver::~Driver() { server_.stop(); }

void Driver::tick() {
  update();
  if (claim_files_->look()) claim_keeper_->files_changed();
  look_after_doors();
  if (loop_.now() - health_sent_ >= kHealthInterval) publish_health();
  timer_ = loop_.after(kLookInterval, [this] { tick(); });
}

// ---- devices ------------------------------------------------------------------------------------

void Driver::update() {
  cdi_.look();
  bool changed = false;
  for (const auto& [name, news] : classes_.all()) {
    const auto unhealthy = judge(news, cdi_.problem(name));
    auto& device = devices_[name];
    if (unhealthy != device.unhealthy && (unhealthy || !device.offered.name.empty())) {
      if (unhealthy)
        base::log_warning("class " + name + " is unhealthy: " + unhealthy->sentence);
      else
        base::log_info("class " + name + " is healthy again");
    }
    Device now{
        pool_device_of(news.last, unhealthy, places_.domain, pcie_root(news.last.parent(), "/sys")),
        unhealthy};
    changed |= now != device;
    device = std::move(now);
  }
  std::map<std::string, Claims::Offered> offered;
  std::vector<PoolDevice> pool;
  for (const auto& [name, device] : devices_) {
    offered[device.offered.name] = {name, device.unhealthy ? device.unhealthy->sentence : ""};
    pool.push_back(device.offered);
  }
  claims_.offer(std::move(offered), cdi_.hook());
  if (!changed) return;
  slice_keeper_->want(std::move(pool));
  publish_health();
}

void Driver::publish_health() {
  health_sent_ = loop_.now();
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  kubelet::NodeWatchResourcesResponse health;
  for (const auto& [name, device] : devices_) {
    auto& row = *health.add_devices();
    row.mutable_device()->set_pool_name(places_.node);
    row.mutable_device()->set_device_name(device.offered.name);
    row.set_health(device.unhealthy ? kubelet::UNHEALTHY : kubelet::HEALTHY);
    row.set_last_updated_time(now);
    row.set_health_check_timeout_seconds(kHealthTimeout);
    if (device.unhealthy)
      row.set_message(
          base::printable(device.unhealthy->sentence, kMostOfHealth).substr(0, kMostOfHealth));
  }
  service_->publish(std::move(health));
}

// ---- sockets ------------------------------------------------------------------------------------

base::Result<Driver::Door> Driver::open_door(const std::string& directory,
                                             const std::string& stem) {
  remove_stale(directory, stem);
  auto file = SocketFile::listen(directory, stem, base::random32());
  if (!file) return base::pass(std::move(file).error());
  Door door{std::move(*file), nullptr};
  auto acceptor = serve::Acceptor::start(loop_, door.file.take_listener(),
                                         serve::Acceptor::accept([this](base::Fd client) {
                                           service_->add_client(std::move(client));
                                         }));
  if (!acceptor) return base::pass(std::move(acceptor).error());
  door.acceptor = std::move(*acceptor);
  return door;
}

// The kubelet connects to the second as soon as it sees it, and then to the first.
base::Result<void> Driver::open_doors() {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return base::fail(error.value(), "make " + directory_ + ": " + error.message());
  registrar_.reset();
  endpoint_.reset();
  registration_ = "the kubelet has not registered it";
  auto endpoint = open_door(directory_, "dra");
  if (!endpoint) return base::pass(std::move(endpoint).error());
  service_->set_endpoint(directory_ + "/" + endpoint->file.name());
  auto registrar = open_door(registry_, shorten(places_.domain, kMostOfStem, '~'));
  if (!registrar) return base::pass(std::move(registrar).error());
  endpoint_.emplace(std::move(*endpoint));
  registrar_.emplace(std::move(*registrar));
  return {};
}

void Driver::look_after_doors() {
  const bool in_place =
      registrar_ && endpoint_ && registrar_->file.in_place() && endpoint_->file.in_place();
  if (!in_place) {
    const auto opened = open_doors();
    const std::string error = opened ? "" : opened.error().message();
    if (error != door_error_ && !error.empty())
      base::log_warning("waiting for the kubelet: " + error);
    door_error_ = error;
  }
  const bool yields = registrar_ && registrar_->file.younger().listens;
  slice_keeper_->yield(yields);
  claim_keeper_->yield(yields);
}

void Driver::on_registered(const std::string& refusal) {
  ++(refusal.empty() ? registered_ : refused_);
  if (refusal != registration_ || refusal.empty()) {
    if (refusal.empty())
      base::log_info("the kubelet has registered " + places_.domain);
    else
      base::log_warning(refusal);
  }
  registration_ = refusal;
}

DriverStatus Driver::status() {
  DriverStatus status;
  status.slices = slice_keeper_->status();
  status.claims = &claims_.counts();
  status.registered = registered_;
  status.refused = refused_;
  for (const auto& [name, device] : devices_)
    if (device.unhealthy) status.unhealthy.emplace(name, *device.unhealthy);
  for (const auto& reason : {classes_.unreachable(), door_error_, registration_,
                             status.slices.trouble, claim_keeper_->trouble()})
    if (status.not_ready.empty()) status.not_ready = reason;
  return status;
}

}  // namespace vrdma::cli::kubernetes
