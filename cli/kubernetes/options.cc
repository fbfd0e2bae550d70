#include "cli/kubernetes/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "api/client.h"
#include "cli/kubernetes/plugin/names.h"
#include "core/base/option_check.h"
#include "core/base/option_sentence.h"
#include "core/serve/http.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr int kUsage = 2;
constexpr const char* kModes[] = {"plugin", "dra"};

// A DNS subdomain.
bool is_subdomain(const std::string& text) {
  const auto is_inner = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  const bool valid = !text.empty() && text.size() <= 253 &&
                     std::all_of(text.begin(), text.end(), is_inner) &&
                     text.find("..") == std::string::npos && text.front() != '.' &&
                     text.front() != '-' && text.back() != '.' && text.back() != '-';
  return valid;
}

// The kubelet demands one.
std::string is_domain(const std::string& text) {
  return is_subdomain(text) ? "" : base::in_quotes(text) + " is not a domain such as vrdma.io";
}

std::string is_node(const std::string& text) {
  return is_subdomain(text) ? "" : base::in_quotes(text) + " is not the name of a node";
}

std::string is_api_url(const std::string& text) {
  const bool valid = text.starts_with("https://") && text.size() > 8 && text.back() != '/';
  return valid ? "" : base::in_quotes(text) + " is not a URL such as https://10.96.0.1:443";
}

// What the DRA driver cannot do without.
std::string missing_of(const Driver::Places& places) {
  if (places.node.empty()) return "--mode dra needs --node, or NODE_NAME in the environment";
  if (places.api.url.empty())
    return "--mode dra needs --api-server outside of a pod of the cluster";
  if (places.domain.size() > 63)
    return "--domain: the name of a DRA driver has at most 63 characters";
  return {};
}

std::string is_address(const std::string& text) {
  const auto valid = serve::HttpServer::check(text, serve::HttpServer::Reach::kNetwork);
  return valid ? "" : valid.error().message();
}

}  // namespace

bool parse(int argc, char** argv, Options* options, int* status) {
  Plugin::Places& places = options->plugin;
  places = {api::default_run_dir(), "/var/lib/kubelet/device-plugins", "/etc/cdi/vrdma.json",
            kDefaultDomain};
  Driver::Places& driver = options->driver;
  driver.kubelet_root = "/var/lib/kubelet";
  driver.claims_dir = "/var/run/cdi";
  driver.api = {ApiServer::url_of_pod(), "/var/run/secrets/kubernetes.io/serviceaccount"};
  std::string mode = kModes[0];
  CLI::App app("offers the classes of vrdmad to Kubernetes, as resources of this node",
               "vrdma-device-plugin");
  app.set_version_flag("--version", "vrdma-device-plugin " VRDMA_VERSION);
  app.add_option("--mode", mode, "plugin: a device plugin; dra: a driver of resource claims")
      ->check(base::one_of({kModes[0], kModes[1]}), "")
      ->type_name("plugin|dra")
      ->capture_default_str();
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
  app.add_option("--domain", places.domain,
                 "of the resources: containers ask for DOMAIN/CLASS; the DRA driver's name")
      ->check(is_domain, "")
      ->type_name("DOMAIN")
      ->capture_default_str();
  app.add_option("--listen", options->listen,
                 "serves /metrics, /healthz and /readyz: ADDRESS:PORT or unix:PATH")
      ->check(is_address, "")
      ->type_name("ADDRESS");
  const auto add = [&app](const char* name, std::string& place, const char* what,
                          std::string (*check)(const std::string&), const char* type) {
    return app.add_option(name, place, what)
        ->check(check, "")
        ->type_name(type)
        ->group("--mode dra");
  };
  add("--node", driver.node, "the name of this node in the cluster", is_node, "NAME")
      ->envname("NODE_NAME");
  add("--kubelet-root", driver.kubelet_root, "the kubelet's directory", base::is_absolute_path,
      "DIR")
      ->capture_default_str();
  add("--claims-dir", driver.claims_dir, "where container engines look for CDI files of claims",
      base::is_absolute_path, "DIR")
      ->capture_default_str();
  add("--api-server", driver.api.url, "of the cluster; default: that of the pod's environment",
      is_api_url, "URL");
  add("--service-account", driver.api.account, "the files token and ca.crt", base::is_absolute_path,
      "DIR")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    *status = app.exit(wanted);
    if (std::cout.flush()) return false;
    std::cerr << "vrdma-device-plugin: cannot write the output\n";
    *status = 1;
    return false;
  } catch (const CLI::ParseError& wrong) {
    std::cerr << "vrdma-device-plugin: " << base::sentence_of(app, wrong) << "; see --help\n";
    *status = kUsage;
    return false;
  }
  options->dra = mode == kModes[1];
  driver.run_dir = places.run_dir;
  driver.cdi = places.cdi;
  driver.domain = places.domain;
  const std::string missing = options->dra ? missing_of(driver) : "";
  if (missing.empty()) return true;
  std::cerr << "vrdma-device-plugin: " << missing << "; see --help\n";
  *status = kUsage;
  return false;
}

}  // namespace vrdma::cli::kubernetes
