// What may be typed next on vrdmactl's command line, for shells: made from the grammar, so that a
// command, an option or a word of it is completed without a further list.
//
// A shell's script (packaging/completion) calls `vrdmactl complete -- WORD...` with the words
// behind the name of the program up to the cursor, the last of which may be empty. It prints a line
// for each candidate: the word, a tab, and what it is. A first line ":files" or ":directories"
// tells the shell to complete the names of files itself. Needs no daemon, but names of vdevices and
// other objects come from the one that the words speak to.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/grammar.h"

namespace vrdma::cli {

constexpr char kCompleteWord[] = "complete";  // no command of the grammar

struct Candidate {
  std::string word, help;
};
// The names of the objects of a kind, of the daemon of this run directory, that may complete
// `word`.
using NamesOf = std::function<std::vector<std::string>(Values::Kind, const std::string& run_dir,
                                                       const std::string& word)>;

// `words`: as above. `run_dir`: unless the words name another one.
[[nodiscard]] std::vector<Candidate> candidates(const std::vector<std::string>& words,
                                                const std::string& run_dir, const NamesOf& names);
// The same, printed, with the names of the daemon that runs.
void print_candidates(const std::vector<std::string>& words, const std::string& run_dir,
                      std::ostream& out);

// packaging/completion/vrdmactl.SHELL. `shell`: bash, zsh or fish.
[[nodiscard]] const char* completion_script(const std::string& shell);

}  // namespace vrdma::cli
