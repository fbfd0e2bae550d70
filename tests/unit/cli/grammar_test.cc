#include "cli/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/completion.h"

namespace vrdma::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The words of a line of an example: blanks separate, quotes keep together. A command in $(...) or
// <(...) is the line itself.
std::vector<std::string> words_of(std::string line) {
  if (const size_t inner = line.rfind("(vrdmactl"); inner != std::string::npos)
    line = line.substr(inner + 1, line.find(')', inner) - inner - 1);
  std::vector<std::string> words{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '|' || c == '>') break;
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted && !words.back().empty()) words.emplace_back();
    if (c != '\'' && (c != ' ' || quoted)) words.back() += c;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Those with an action.
std::vector<CLI::App*> leaves(CLI::App& app) {
  const auto below = app.get_subcommands([](CLI::App*) { return true; });
  if (below.empty() && app.get_name() != "help") return {&app};
  std::vector<CLI::App*> all;
  for (CLI::App* one : below)
    for (CLI::App* leaf : leaves(*one)) all.push_back(leaf);
  return all;
}

std::string path_of(const CLI::App* leaf) {
  std::string path = leaf->get_name();
  for (leaf = leaf->get_parent(); leaf->get_parent() != nullptr; leaf = leaf->get_parent())
    path = leaf->get_name() + " " + path;
  return path;
}

// Of a command line that is right.
Command parse(const std::string& line) {
  Options options;
  options.classes = "/dev/null";
  std::vector<std::string> words = words_of(line);
  EXPECT_EQ(words.front(), "vrdmactl") << line;
  words.erase(words.begin());
  std::replace(words.begin(), words.end(), std::string("/etc/vrdma/classes.conf"),
               std::string("/dev/null"));
  options.command = cut_command(words);
  Grammar grammar(options);
  try {
    grammar.parse(words);
  } catch (const CLI::Success&) {
    return nullptr;
  } catch (const CLI::ParseError& wrong) {
    ADD_FAILURE() << line << ": " << wrong.what() << " " << grammar.on_unknown_word();
    return nullptr;
  }
  EXPECT_EQ(grammar.mistake(), "") << line;
  return grammar.command();
}

TEST(Grammar, every_command_has_two_examples_of_its_own_that_are_right) {
  Options options;
  Grammar grammar(options);
  std::set<std::string> known{""};
  for (CLI::App* leaf : leaves(grammar.app())) {
    const std::string path = path_of(leaf);
    known.insert(path);
    const auto its = examples().find(path);
    ASSERT_TRUE(its != examples().end() && its->second.size() == 2) << path;
    const std::string end = "\nExamples:\n  " + its->second[0] + "\n  " + its->second[1] + "\n";
    EXPECT_TRUE(("\n" + leaf->help()).ends_with(end)) << leaf->help();
    for (const auto& line : its->second) {
      EXPECT_NE(parse(line), nullptr) << line;
      const std::string command = leaf->get_parent()->get_name() + " " + leaf->get_name();
      EXPECT_TRUE(line.find(path) != std::string::npos || line.find(" rm ") != std::string::npos)
          << line << " is no example of " << command;
    }
  }
  for (const auto& [path, lines] : examples())
    EXPECT_TRUE(known.contains(path)) << path << " is no command";
  EXPECT_TRUE(grammar.app().help().ends_with("vrdmactl help vdev create\n"));
  EXPECT_THAT(
      grammar.app().get_subcommand("vdev")->help(),
      testing::EndsWith("\nExamples:\n"
                        "  vrdmactl vdev create red0 --netns red --netdev eth0 --tenant shop\n"
                        "  vrdmactl vdev list --label class=small --columns name,who,labels\n"));
}

TEST(Grammar, columns_are_those_of_the_command) {
  const auto mistake = [](std::vector<std::string> words) {
    Options options;
    Grammar grammar(options);
    grammar.parse(std::move(words));
    return grammar.mistake();
  };
  EXPECT_EQ(mistake({"vdev", "list", "--columns", "name,who"}), "");
  EXPECT_EQ(mistake({"fabric", "list", "--columns", "name,who"}),
            "--columns: there is no column 'who'; there are NAME, REACH, VDEVICES, GIDS, "
            "PEERS");
  EXPECT_EQ(mistake({"quota", "show", "--columns", "cgroup", "--cgroup"}), "");
  EXPECT_EQ(
      mistake({"quota", "show", "--columns", "limit", "--cgroup"}),
      "--columns: there is no column 'limit'; there are CGROUP, VDEVICE, KIND, USED, NETNS, ID");
  EXPECT_EQ(mistake({"vdev", "list", "--columns", "name", "-j"}),
            "--columns is for tables: JSON has every field");
}

TEST(Grammar, states_are_accepted_in_either_case) {
  Options options;
  Grammar grammar(options);
  grammar.parse({"vdev", "list", "--state", "lost"});
  EXPECT_EQ(options.filter.state, "LOST");
}

std::vector<std::string> completed(const std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (const auto& one : candidates(
           words, "/default", [](Values::Kind kind, const std::string&run_dir, const std::string&) {
             return std::vector{std::to_string(static_cast<int>(kind)) + run_dir};
           }))
    found.push_back(one.word);
  return found;
}
std::string of(Values::Kind kind, const std::string& run_dir = "/default") {
  return std::to_string(static_cast<int>(kind)) + run_dir;
}

TEST(Completion, is_what_the_grammar_allows) {
  using Kind = Values::Kind;
  EXPECT_THAT(completed({"v"}), ElementsAre("vdev", "version"));
  EXPECT_THAT(completed({"vdev", ""}),
              ElementsAre("create", "list", "show", "label", "export", "delete"));
  EXPECT_THAT(completed({"vdev", "create", "x", "--net"}), ElementsAre("--netns", "--netdev"));
  EXPECT_THAT(completed({"vdev", "create", ""}), IsEmpty()) << "a new name";
  EXPECT_THAT(completed({"vdev", "rm", "a", "b", ""}), ElementsAre(of(Kind::kVdevices)));
  EXPECT_THAT(completed({"vdev", "show", "a", ""}), IsEmpty()) << "it takes one name";
  EXPECT_THAT(completed({"-o", ""}), ElementsAre("table", "json"));
  EXPECT_THAT(completed({"-o", "json", "vdev", "--run-dir", "/r", "show", ""}),
              ElementsAre(of(Kind::kVdevices, "/r")));
  EXPECT_THAT(completed({"tenant", "set", ""}), ElementsAre(of(Kind::kTenants)));
  EXPECT_THAT(completed({"vdev", "list", "--fabric", ""}), ElementsAre(of(Kind::kFabrics)));
  EXPECT_THAT(completed({"vdev", "create", "--parent", ""}), ElementsAre(of(Kind::kParents)));
  EXPECT_THAT(completed({"vdev", "list", "--columns", "NAME,W"}), ElementsAre("NAME,WHO"));
  EXPECT_THAT(completed({"quota", "set", "a", "qp=1,mr"}),
              ElementsAre("qp=1,mr=", "qp=1,mr_bytes=", "qp=1,mr_rate="));
  EXPECT_THAT(completed({"wait", "a", "--for", ""}), ElementsAre("active", "gone"));
  EXPECT_THAT(completed({"cdi", "generate", "-o", ""}), ElementsAre(":files"));
  EXPECT_THAT(completed({"--run-dir", "/t"}), ElementsAre(":directories"));
  EXPECT_THAT(completed({"exec", "a", ""}), ElementsAre("--"));
  EXPECT_THAT(completed({"stats", ""}), ElementsAre(of(Kind::kScopes)));
  EXPECT_THAT(completed({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
}

}  // namespace
}  // namespace vrdma::cli
