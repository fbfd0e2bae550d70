#include "cli/completion.h"

#include <algorithm>
#include <filesystem>

#include "api/client.h"
#include "cli/who.h"

namespace vrdma::cli {

namespace {

using Kind = Values::Kind;

// A walk along the words before the cursor.
class Walk {
 public:
  Walk(Grammar& grammar, std::string run_dir)
      : grammar_(grammar), at_(&grammar.app()), run_dir_(std::move(run_dir)) {}

  void step(const std::string& word) {
    if (const CLI::Option* const option = std::exchange(value_of_, nullptr)) {
      if (option->check_name("--run-dir")) run_dir_ = word;
      return;
    }
    if (word.starts_with("-") && word.size() > 1) {
      const CLI::Option* const option = find(word.substr(0, word.find('=')));
      const bool has_value = option != nullptr && option->get_items_expected_max() > 0;
      if (has_value && word.find('=') == std::string::npos) value_of_ = option;
      return;
    }
    if (arguments_ == 0)
      for (CLI::App* one : commands())
        if (one->check_name(word)) {
          at_ = one;
          return;
        }
    ++arguments_;
  }

  [[nodiscard]] std::vector<Candidate> last(const std::string& word, const NamesOf& names) const {
    if (value_of_ != nullptr) return values(value_of_, word, names);
    if (word.starts_with("-")) return options();
    std::vector<Candidate> found;
    if (arguments_ == 0)
      for (const CLI::App* one : commands())
        found.push_back({one->get_name(), one->get_description()});
    std::vector<const CLI::Option*> positionals;
    for (const CLI::Option* option : at_->get_options())
      if (option->get_positional()) positionals.push_back(option);
    if (!positionals.empty()) {
      // The last one may take all the rest.
      const size_t place = std::min(arguments_, positionals.size() - 1);
      const bool has_room = place == arguments_ || positionals[place]->get_items_expected_max() > 1;
      if (has_room) found = values(positionals[place], word, names);
    }
    const std::string& command = at_->get_name();
    if ((command == "exec" && arguments_ == 1) || command == "doctor")
      found.push_back({"--", "a program and its arguments follow"});
    return found;
  }

 private:
  [[nodiscard]] std::vector<CLI::App*> commands() const {
    return at_->get_subcommands([](CLI::App*) { return true; });
  }
  // Of the command, or of those that it belongs to.
  [[nodiscard]] const CLI::Option* find(const std::string& name) const {
    for (CLI::App* app = at_; app != nullptr; app = app->get_parent())
      if (const CLI::Option* const option = app->get_option_no_throw(name)) return option;
    return nullptr;
  }
  [[nodiscard]] std::vector<Candidate> options() const {
    std::vector<Candidate> found;
    for (CLI::App* app = at_; app != nullptr; app = app->get_parent())
      for (const CLI::Option* option : app->get_options()) {
        for (const auto& name : option->get_lnames()) {
          const bool is_known = std::any_of(
              found.begin(), found.end(), [&](const auto& one) { return one.word == "--" + name; });
          if (!is_known) found.push_back({"--" + name, option->get_description()});
        }
      }
    return found;
  }
  [[nodiscard]] std::vector<Candidate> values(const CLI::Option* option, const std::string& word,
                                              const NamesOf& names) const {
    const Values values = grammar_.values_of(option);
    if (values.kind == Kind::kFiles) return {{":files", ""}};
    if (values.kind == Kind::kDirectories) return {{":directories", ""}};
    // Of "qp=4,m" the last part is completed.
    const size_t comma = values.listed ? word.rfind(',') : std::string::npos;
    const std::string before = comma != std::string::npos ? word.substr(0, comma + 1) : "";
    std::vector<Candidate> found;
    if (values.kind == Kind::kWords)
      for (const auto& one : values.words) found.push_back({before + one, ""});
    else if (values.kind != Kind::kNothing)
      for (const auto& one : names(values.kind, run_dir_, word)) found.push_back({one, ""});
    return found;
  }

  Grammar& grammar_;
  CLI::App* at_;
  std::string run_dir_;
  size_t arguments_ = 0;                   // of at_, so far
  const CLI::Option* value_of_ = nullptr;  // the next word is its value
};

template <class Rows>
std::vector<std::string> names_in(const base::Result<Rows>& rows) {
  std::vector<std::string> names;
  if (rows)
    for (const auto& row : *rows) names.push_back(row.name());
  return names;
}

std::vector<std::string> namespaces() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", ignored))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_of_daemon(Kind kind, const std::string& run_dir,
                                         const std::string& word) {
  if (kind == Kind::kNamespaces) return namespaces();
  auto client = api::Client::connect(run_dir);
  if (!client) return {};
  if (kind == Kind::kTenants) return names_in(client->list_budgets(v1::TENANT));
  if (kind == Kind::kFabrics) return names_in(client->list_fabrics());
  if (kind == Kind::kClaims) {
    std::vector<std::string> uids;
    if (const auto claims = client->list_claims())
      for (const auto& claim : *claims) uids.push_back(claim.uid());
    return uids;
  }
  if (kind == Kind::kParents) return names_in(client->list_parents());
  std::vector<std::string> names;
  if (kind == Kind::kScopes) names.emplace_back("daemon");
  const auto vdevs = client->list_vdevs();
  if (!vdevs) return names;
  const References references(*vdevs);
  for (const auto& vdev : *vdevs) {
    names.push_back(references.of(vdev));
    // The other ways to name it are for words that begin so.
    const auto add = [&](const std::string& name) {
      if (names.back() != name) names.push_back(name);
    };
    if (word.find('/') != std::string::npos) {
      add(vdev.netns() + "/" + vdev.name());
      if (const auto pod = pod_of(vdev); !pod.empty()) add(pod);
    }
    if (const auto container = container_of(vdev);
        word.starts_with("container:") && !container.empty())
      add("container:" + container);
  }
  return names;
}

}  // namespace

std::vector<Candidate> candidates(const std::vector<std::string>& words, const std::string& run_dir,
                                  const NamesOf& names) {
  if (words.empty()) return {};
  Options options;
  Grammar grammar(options);
  Walk walk(grammar, run_dir);
  for (size_t i = 0; i + 1 < words.size(); ++i) walk.step(words[i]);
  auto found = walk.last(words.back(), names);
  if (found.size() == 1 && found[0].word.starts_with(":")) return found;
  std::erase_if(found, [&](const Candidate& one) { return !one.word.starts_with(words.back()); });
  return found;
}

void print_candidates(const std::vector<std::string>& words, const std::string& run_dir,
                      std::ostream& out) {
  for (const auto& [word, help] : candidates(words, run_dir, names_of_daemon))
    out << word << '\t' << help << '\n';
}

}  // namespace vrdma::cli
