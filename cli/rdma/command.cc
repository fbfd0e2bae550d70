#include "cli/rdma/command.h"

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "cli/rdma/report.h"
#include "cli/rdma/vdevice.h"

namespace vrdma::cli::rdma {

namespace {

struct Request {
  std::vector<std::string> words;  // without options
  Report::Format format = Report::Format::kText;
  bool details = false;
};

// Words may be cut short, as iproute2 has it.
bool is(const std::string& word, const std::string& full) {
  return !word.empty() && full.rfind(word, 0) == 0;
}

// None: an option that this program has not.
std::optional<Request> parse(const std::vector<std::string>& words) {
  Request request;
  bool json = false, pretty = false;
  size_t i = 0;
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    const std::string& word = words[i];
    if (word[1] == '-') {
      json = json || word == "--json";
      pretty = pretty || word == "--pretty";
      request.details = request.details || word == "--details";
      if (word != "--json" && word != "--pretty" && word != "--details") return {};
      continue;
    }
    for (const char letter : word.substr(1)) {
      json = json || letter == 'j';
      pretty = pretty || letter == 'p';
      request.details = request.details || letter == 'd';
      if (letter != 'j' && letter != 'p' && letter != 'd') return {};
    }
  }
  if (json) request.format = pretty ? Report::Format::kPretty : Report::Format::kJson;
  for (; i < words.size(); ++i) {
    // Scripts write options behind too.
    if (words[i] == "-j" && request.format == Report::Format::kText)
      request.format = pretty ? Report::Format::kPretty : Report::Format::kJson;
    else
      request.words.push_back(words[i]);
  }
  return request;
}

void begin(Report& report, const Vdevice& vdevice) {
  report.begin_row();
  report.in_json("ifindex", std::to_string(vdevice.index()), false);
}

void dev(Report& report, const Vdevice& vdevice, bool) {
  begin(report, vdevice);
  report.in_json("ifname", vdevice.name(), true);
  report.in_text(std::to_string(vdevice.index()) + ": " + vdevice.name() + ": ");
  report.text("node_type", "ca");
  report.text("fw", vdevice.attribute("fw_ver"));
  report.text("node_guid", vdevice.attribute("node_guid"));
  report.text("sys_image_guid", vdevice.attribute("sys_image_guid"));
}

// Also the beginning of a row of statistics.
void begin_link(Report& report, const Vdevice& vdevice) {
  begin(report, vdevice);
  report.in_json("ifname", vdevice.name(), true);
  report.in_json("port", "1", false);
  report.in_text("link " + vdevice.name() + "/1 ");
}

std::string upper(std::string state) {
  if (state == "LinkUp") return "LINK_UP";
  for (char& c : state)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return state;
}

void link(Report& report, const Vdevice& vdevice, bool details) {
  begin_link(report, vdevice);
  report.text("state", vdevice.state("ports/1/state"));
  report.text("physical_state", upper(vdevice.state("ports/1/phys_state")));
  const auto [netdev, index] = vdevice.netdev();
  report.text("netdev", netdev);
  if (details)
    report.number("netdev_index", index);
  else if (!index.empty())
    report.in_json("netdev_index", index, false);
  // CM: the only one that vdevices have.
  constexpr uint64_t kCm = 1u << 16;
  if (details &&
      (std::strtoull(vdevice.attribute("ports/1/cap_mask").c_str(), nullptr, 0) & kCm) != 0)
    report.list("caps", {"CM"});
}

void resource(Report& report, const Vdevice& vdevice, bool) {
  begin(report, vdevice);
  report.in_json("ifname", vdevice.name(), true);
  report.in_text(std::to_string(vdevice.index()) + ": " + vdevice.name() + ": ");
  for (const auto& [name, value] :
       vdevice.numbers("device/resources", {"pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"}))
    report.number(name, value);
}

void statistic(Report& report, const Vdevice& vdevice, bool) {
  begin_link(report, vdevice);
  for (const auto& [name, value] : vdevice.numbers("ports/1/hw_counters"))
    if (name != "lifespan") report.number(name, value);
}

}  // namespace

std::optional<Answer> answer(const std::vector<std::string>& words, const std::string& sys) {
  const auto request = parse(words);
  if (!request || request->words.empty()) return {};
  const std::string& object = request->words[0];
  void (*print)(Report&, const Vdevice&, bool) = is(object, "dev")        ? dev
                                                 : is(object, "link")     ? link
                                                 : is(object, "resource") ? resource
                                                 : object != "s" && is(object, "statistic")
                                                     ? statistic
                                                     : nullptr;
  if (print == nullptr) return {};
  const auto vdevices = Vdevice::all(sys);
  if (vdevices.empty()) return {};

  std::vector<std::string> rest(request->words.begin() + 1, request->words.end());
  if (!rest.empty()) {
    if (!is(rest[0], "show") && !is(rest[0], "list")) return {};
    rest.erase(rest.begin());
  }
  if (print == statistic && rest.size() == 2 && is(rest[0], "link")) rest.erase(rest.begin());
  if (print == resource && !rest.empty())
    for (const char* const kind : {"qp", "cq", "mr", "pd", "cm_id", "srq", "ctx"})
      if (rest[0] == kind)
        return Answer{1,
                      "rdma: a vdevice does not tell numbers and keys of single objects: 'rdma "
                      "resource' counts them, and 'vrdmactl vdev show' does on the host\n"};
  if (rest.size() > 1) return {};
  std::string name = rest.empty() ? "" : rest[0];
  const bool by_port = print == link || print == statistic;
  if (by_port && name.ends_with("/1")) name.resize(name.size() - 2);

  Report report(request->format);
  bool found = false;
  for (const auto& vdevice : vdevices) {
    if (!name.empty() && name != vdevice.name()) continue;
    found = true;
    print(report, vdevice, request->details);
  }
  if (!found) return {};
  return Answer{0, report.str()};
}

}  // namespace vrdma::cli::rdma
