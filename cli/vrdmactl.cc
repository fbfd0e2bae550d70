// vrdmactl, the operator's command line: parses it (cli/grammar.h), runs the command (commands.h)
// and prints errors.
//
// Exit status: 0 success, 1 the operation failed, 2 the command line is wrong, or doctor learned
// nothing; of exec that of the program, or 125 if it was not started. An error is one line on
// stderr: a sentence, or with -o json {"error": SENTENCE, "errno": N}.
#include <algorithm>
#include <clocale>
#include <iostream>
#include <utility>

#include "api/classes.h"
#include "api/client.h"
#include "cli/cdi.h"
#include "cli/completion.h"
#include "cli/grammar.h"
#include "cli/json.h"
#include "core/base/option_check.h"
#include "core/base/option_sentence.h"
#include "core/base/printable.h"
#include "core/base/standard_streams.h"

namespace vrdma::cli {
namespace {

// Also of a command line that the parser refuses.
bool asks_for_json(const std::vector<std::string>& words) {
  const auto is = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is("-j") || is("--json") || is("-ojson") || is("--output=json")) return true;
  if (is("generate")) return false;  // whose -o is a file
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if ((words[i] == "-o" || words[i] == "--output") && words[i + 1] == "json") return true;
  return false;
}

// Prints errors.
class Complaints {
 public:
  explicit Complaints(bool json) : json_(json) {}
  // Prints one line, whatever characters an operator or the daemon put into it, and returns the
  // exit status.
  int operator()(std::string sentence, int status, int code = EINVAL) const {
    if (json_) {
      std::cerr << json_of_error(sentence, code) << '\n';
      return status;
    }
    std::replace_if(
        sentence.begin(), sentence.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; },
        '?');
    std::cerr << "vrdmactl: " << sentence << '\n';
    return status;
  }

 private:
  const bool json_;
};

// As timeout(1) and docker-run(1), so that it is not taken for the program's.
int failed_status(Command command, const base::Error& error) {
  constexpr int kNotStarted = 125;
  if (command == exec) return kNotStarted;
  if (command == diff_file) return error.code() == kDiffers ? 1 : 2;  // as diff(1)
  return command == diagnose && error.code() == EAGAIN ? 2 : 1;
}

int run(std::vector<std::string> words) {
  Options options;
  options.run_dir = api::default_run_dir();
  options.file = kCdiFile;
  options.classes = api::kClassesFile;
  if (words.size() >= 2 && words[0] == kCompleteWord && words[1] == "--") {
    words.erase(words.begin(), words.begin() + 2);
    print_candidates(words, options.run_dir, std::cout);
    return 0;
  }
  options.command = cut_command(words);
  const Complaints complain(asks_for_json(words));
  for (const auto& word : words)
    if (!base::is_utf8(word)) return complain(base::in_quotes(word) + " is not UTF-8", 2);
  Grammar grammar(options);
  try {
    grammar.parse(words);
  } catch (const CLI::Success& wanted) {  // ends by --help or --version
    if (const std::string sentence = grammar.on_unknown_word(); !sentence.empty())
      return complain(sentence, 2);
    const int status = grammar.app().exit(wanted);
    return std::cout.flush() ? status : complain("cannot write the output", 1, EIO);
  } catch (const CLI::ParseError& wrong) {
    // CLI11 misses an argument before it names the word that is too many.
    const std::string sentence = grammar.on_unknown_word();
    return complain(sentence.empty() ? base::sentence_of(grammar.app(), wrong) : sentence, 2);
  }
  if (const std::string sentence = grammar.mistake(); !sentence.empty())
    return complain(sentence, 2);

  options.format = grammar.json() ? Format::kJson : Format::kTable;
  Style style = Style::of_output();
  style.columns = options.columns;
  style.exact = options.bytes;
  Output output(std::cout, options.format, style);
  if (auto outcome = grammar.command()(options, output); !outcome)
    return complain(outcome.error().message(), failed_status(grammar.command(), outcome.error()),
                    outcome.error().code());
  if (!std::cout.flush())
    return complain(grammar.command() == vdev_create
                        ? "the vdevice was created, but vrdmactl cannot write the output"
                        : "cannot write the output",
                    1, EIO);
  return 0;
}

}  // namespace
}  // namespace vrdma::cli

int main(int argc, char** argv) {
  vrdma::base::fill_standard_streams(false);
  (void)std::setlocale(LC_CTYPE, "");  // for what a terminal can show
  return vrdma::cli::run({argv + 1, argv + argc});
}
