// The grammar of vrdmactl's command line. Shell completion reads it too.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace vrdma::cli {

using Command = Outcome (*)(const Options&, Output&);

// The words that completion offers for the value of an option, or for an argument.
struct Values {
  enum class Kind {
    kNothing,  // that could be listed
    kWords,    // `words`
    kVdevices,
    kScopes,  // vdevices and "daemon"
    kTenants,
    kFabrics,
    kParents,
    kClaims,
    kNamespaces,
    kFiles,
    kDirectories,
  };
  Kind kind = Kind::kNothing;
  std::vector<std::string> words = {};
  bool listed = false;  // several may follow each other behind commas
};

// Cuts "exec NAME -- CMD..." and "doctor -- CMD..." at the first "--" and returns what follows,
// which this program does not parse.
[[nodiscard]] std::vector<std::string> cut_command(std::vector<std::string>& words);

class Grammar {
 public:
  // Parsing writes to `options`, which must outlive it.
  explicit Grammar(Options& options);
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // Throws as CLI11 does. `words` begins behind the name of the program. "help quota" is
  // "quota --help".
  void parse(std::vector<std::string> words);
  CLI::App& app() { return app_; }
  // After an error of the command line. Empty: each word is known.
  [[nodiscard]] std::string on_unknown_word();
  // Of the parsed leaf; null: none.
  [[nodiscard]] Command command() const { return command_; }
  [[nodiscard]] bool json() const { return json_ || format_ == "json"; }
  // What the parser does not check; empty: nothing is wrong.
  [[nodiscard]] std::string mistake() const;

  [[nodiscard]] Values values_of(const CLI::Option* option) const;

 private:
  CLI::App& group(const char* word, const char* help);
  CLI::App& leaf(CLI::App& parent, const char* word, const char* help, Command action);
  // The argument NAME.
  CLI::Option& name(CLI::App& sub, const char* help, Values::Kind kind = Values::Kind::kVdevices);
  static CLI::Option& text(CLI::App& sub, const char* option, std::string& value, const char* type,
                           const char* help);
  // An option that is one of these words, in either case if they are upper-case.
  CLI::Option& choice(CLI::App& sub, const char* option, std::string& value,
                      const std::vector<std::string>& words, const char* help);
  CLI::Option& quota(CLI::App& sub, const char* option);
  CLI::Option& quota(CLI::App& sub, const char* option, std::vector<std::string>& into,
                     const char* help);
  // --columns, of a leaf that prints a table.
  void columns(CLI::App& sub, const Columns& columns);
  void sizes(CLI::App& sub);  // --bytes
  // --tenant and so on, of a leaf that lists what belongs to vdevices; `states`: words of --state.
  void filters(CLI::App& sub, const std::vector<std::string>& states);

  void add_vdev();
  void add_quota();
  void add_budget(CLI::App& of, const char* whose, Values::Kind kind, Command show, Command set);
  void add_objects();
  void add_rows();
  void add_live();
  void add_checkpoint();
  void add_programs();
  void add_files();
  void add_cdi();
  void add_help();

  CLI::App app_{"drives vrdmad, the daemon of virtual RDMA devices"};
  Options& options_;
  std::string format_ = "table";
  bool json_ = false;
  Command command_ = nullptr;
  const CLI::App* parsed_ = nullptr;                  // the leaf
  std::map<const CLI::App*, const Columns*> tables_;  // what a leaf prints
  std::map<const CLI::Option*, Values> values_;
};

// Two command lines for each command, by its words: {"vdev list", {...}}.
[[nodiscard]] const std::map<std::string, std::vector<std::string>>& examples();

}  // namespace vrdma::cli
