#include "cli/kubernetes/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "api/client.h"
#include "cli/kubernetes/plugin/names.h"
#include "core/base/option_check.h"
#include "core/serve/http.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr int kUsage = 2;

// A DNS subdomain, which the kubelet demands.
std::string is_domain(const std::string& text) {
  const auto is_inner = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  const bool valid = !text.empty() && text.size() <= 253 &&
                     std::all_of(text.begin(), text.end(), is_inner) &&
                     text.find("..") == std::string::npos && text.front() != '.' &&
                     text.front() != '-' && text.back() != '.' && text.back() != '-';
  return valid ? "" : base::in_quotes(text) + " is not a domain such as vrdma.io";
}

std::string is_address(const std::string& text) {
  const auto valid = serve::HttpServer::check(text, serve::HttpServer::Reach::kNetwork);
  return valid ? "" : valid.error().message();
}

}  // namespace

bool parse(int argc, char** argv, Options* options, int* status) {
  Plugin::Places& places = options->places;
  places = {api::default_run_dir(), "/var/lib/kubelet/device-plugins", "/etc/cdi/vrdma.json",
            kDefaultDomain};
  CLI::App app("offers the classes of vrdmad to Kubernetes, as resources of this node",
               "vrdma-device-plugin");
  app.set_version_flag("--version", "vrdma-device-plugin " VRDMA_VERSION);
  app.add_option("--run-dir", places.run_dir, "of vrdmad")
      ->check(base::not_empty, "")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--kubelet-dir", places.kubelet_dir, "the kubelet's directory of device plugins")
      ->check(base::is_absolute_path, "")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--cdi", places.cdi, "the file of vrdmactl cdi generate")
      ->check(base::is_absolute_path, "")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--domain", places.domain, "of the resources: containers ask for DOMAIN/CLASS")
      ->check(is_domain, "")
      ->type_name("DOMAIN")
      ->capture_default_str();
  app.add_option("--listen", options->listen,
                 "serves /metrics, /healthz and /readyz: ADDRESS:PORT or unix:PATH")
      ->check(is_address, "")
      ->type_name("ADDRESS");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    *status = app.exit(wanted);
    if (std::cout.flush()) return false;
    std::cerr << "vrdma-device-plugin: cannot write the output\n";
    *status = 1;
    return false;
  } catch (const CLI::ParseError& wrong) {
    std::cerr << "vrdma-device-plugin: " << wrong.what() << "; see --help\n";
    *status = kUsage;
    return false;
  }
  return true;
}

}  // namespace vrdma::cli::kubernetes
