#include "cli/kubernetes/plugin/resource.h"

#include <chrono>

#include "cli/kubernetes/plugin/names.h"
#include "core/base/log.h"

namespace vrdma::cli::kubernetes {

Resource::Resource(base::EventLoop& loop, const KubeletDirectory& directory,
                   const std::string& domain, const std::string& class_name)
    : loop_(loop), directory_(directory), stem_(socket_stem(domain, class_name)) {
  status_.class_name = class_name;
  status_.resource = resource_name(domain, class_name);
}

base::Result<std::unique_ptr<Resource>> Resource::create(base::EventLoop& loop,
                                                         const KubeletDirectory& directory,
                                                         const std::string& domain,
                                                         const std::string& class_name) {
  std::unique_ptr<Resource> made(new Resource(loop, directory, domain, class_name));
  auto service = Service::start(class_name, made->status_.resource,
                                [&loop, raw = made.get(), alive = std::weak_ptr(made->alive_)](
                                    Service::Event event, const std::string& reason) {
                                  loop.post([=] {
                                    if (!alive.expired()) raw->on_event(event, reason);
                                  });
                                });
  if (!service) return base::pass(std::move(service).error(), made->status_.resource);
  made->service_ = std::move(*service);
  remove_stale(directory.path(), made->stem_);
  return made;
}

void Resource::update(const ClassNews& news, const std::string& cdi) {
  const auto unhealthy = judge(news, cdi);
  if (unhealthy != status_.unhealthy) {
    if (unhealthy)
      base::log_warning(status_.resource + ": its devices are unhealthy: " + unhealthy->sentence);
    else
      base::log_info(status_.resource + ": its devices are healthy again");
    status_.unhealthy = unhealthy;
  }
  if (Offer offer = offer_of(news.last, !unhealthy); offer != status_.offer) {
    service_->publish(devices_of(offer));
    status_.offer = std::move(offer);
  }
}

void Resource::look() {
  listen_error_ = directory_.kubelet() ? listen() : "";
  const std::string endpoint = socket_ ? socket_->name() : "";
  const bool due = registration_.look(loop_.now(), directory_.kubelet(), endpoint,
                                      [this] { return socket_->younger(); });
  if (due)
    call_.emplace(loop_, directory_.kubelet_socket(), endpoint, status_.resource,
                  [this](const std::string& refusal) {
                    call_.reset();
                    ++(refusal.empty() ? status_.registered : status_.refused);
                    registration_.answered(loop_.now(), refusal);
                    look();
                  });
  next_look_.reset();
  if (registration_.state() == Registration::State::kTrying && !call_ &&
      registration_.next_attempt() > loop_.now())
    next_look_ = loop_.after(registration_.next_attempt() - loop_.now(), [this] { look(); });
}

// Makes the socket if it is not in its place. Returns why that fails.
std::string Resource::listen() {
  if (socket_ && socket_->in_place()) return {};
  acceptor_.reset();
  socket_.reset();
  auto made = SocketFile::listen(directory_.path(), stem_, next_socket_);
  if (!made) return made.error().message();
  next_socket_ = base::random32();
  socket_.emplace(std::move(*made));
  auto acceptor = serve::Acceptor::start(loop_, socket_->take_listener(),
                                         serve::Acceptor::accept([this](base::Fd client) {
                                           service_->add_client(std::move(client));
                                         }));
  if (!acceptor) {
    socket_.reset();
    return acceptor.error().message();
  }
  acceptor_ = std::move(*acceptor);
  return {};
}

void Resource::on_event(Service::Event event, const std::string& reason) {
  switch (event) {
    case Service::Event::kStreamBegan:
      registration_.stream_began(loop_.now());
      break;
    case Service::Event::kStreamEnded:
      registration_.stream_ended(loop_.now());
      look();
      break;
    case Service::Event::kAllocated:
      ++status_.allocations;
      break;
    case Service::Event::kRefused:
      ++status_.refusals[reason];
      break;
  }
}

ResourceStatus Resource::status() const {
  ResourceStatus status = status_;
  if (const auto since = registration_.stream_since())
    status.stream_age = std::chrono::duration<double>(loop_.now() - *since).count();
  if (!listen_error_.empty()) {
    status.not_ready = listen_error_;
  } else if (registration_.state() == Registration::State::kAbsent) {
    status.not_ready = "there is no kubelet: " + directory_.kubelet_socket() + " does not exist";
  } else if (registration_.state() == Registration::State::kTrying) {
    status.not_ready = registration_.why();
  }
  return status;
}

void Resource::tell() {
  const std::string not_ready = status().not_ready;
  const bool yields = registration_.state() == Registration::State::kYielding;
  const std::string news = !not_ready.empty() ? "it is not registered: " + not_ready
                           : yields           ? "another, younger instance serves it"
                                              : "the kubelet has registered it";
  if (news == told_) return;
  told_ = news;
  const auto level = not_ready.empty() ? base::LogLevel::kInfo : base::LogLevel::kWarning;
  base::log(level, status_.resource + ": " + news);
}

}  // namespace vrdma::cli::kubernetes
