#include "cli/rdma/vdevice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace vrdma::cli::rdma {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<Vdevice> Vdevice::all(const std::string& sys) {
  std::vector<Vdevice> vdevices;
  const std::string ibdevs = sys + "/class/infiniband/";
  for (const auto& name : names_in(ibdevs)) {
    std::error_code error;
    const std::string target = fs::read_symlink(ibdevs + name, error).string();
    if (error || target.rfind("../../devices/virtual/vrdma/", 0) != 0) continue;
    Vdevice vdevice;
    vdevice.index_ = static_cast<unsigned>(vdevices.size());
    vdevice.name_ = name;
    vdevice.dir_ = ibdevs + name + "/";
    vdevices.push_back(std::move(vdevice));
  }
  return vdevices;
}

std::string Vdevice::attribute(const std::string& file) const {
  std::string line;
  std::ifstream stream(dir_ + file);
  std::getline(stream, line);
  return line;
}

std::string Vdevice::state(const std::string& file) const {
  const std::string line = attribute(file);
  const size_t colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

std::pair<std::string, std::string> Vdevice::netdev() const {
  const auto names = names_in(dir_ + "device/net");
  if (names.empty()) return {};
  return {names[0], attribute("device/net/" + names[0] + "/ifindex")};
}

Vdevice::Numbers Vdevice::numbers(const std::string& directory,
                                  std::vector<std::string> names) const {
  if (names.empty()) names = names_in(dir_ + directory);
  Numbers all;
  for (const auto& name : names)
    if (auto digits = attribute(directory + "/" + name); !digits.empty())
      all.emplace_back(name, std::move(digits));
  return all;
}

}  // namespace vrdma::cli::rdma
