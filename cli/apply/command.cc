// The commands apply, diff and export.
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/apply/export.h"
#include "cli/apply/file.h"
#include "cli/apply/plan.h"
#include "cli/apply/report.h"
#include "cli/apply/run.h"
#include "cli/apply/state.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "core/base/printable.h"

namespace vrdma::cli {

namespace {

std::string number_of(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// One line for each; the error says how many there are.
Outcome complain_of(const std::string& file, const std::vector<apply::Mistake>& mistakes) {
  if (mistakes.empty()) return {};
  for (const auto& [line, sentence] : mistakes)
    std::cerr << "vrdmactl: " << file
              << (line != 0 ? ", line " + std::to_string(line) : std::string()) << ": "
              << base::printable(sentence) << '\n';
  return base::fail(EINVAL,
                    file + ": " + number_of(mistakes.size(), "mistake") + "; nothing was changed");
}

// The file's plan; nothing is changed yet.
base::Result<apply::Plan> plan_of(const Options& options, api::Client& client) {
  const auto text = input_of(options.input);
  if (!text) return base::pass(text.error());
  const std::string file = name_of_file(options.input);
  const auto [wanted, mistakes] = apply::parse(*text);
  if (auto ok = complain_of(file, mistakes); !ok) return base::pass(std::move(ok).error());
  const auto state = apply::ask(client);
  if (!state) return base::pass(state.error());
  auto plan = apply::plan(wanted, *state, {options.recreate, options.prune});
  if (auto ok = complain_of(file, plan.refusals); !ok) return base::pass(std::move(ok).error());
  return plan;
}

}  // namespace

Outcome apply_file(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    const auto plan = plan_of(options, client);
    if (!plan) return base::pass(plan.error());
    const bool table = options.format == Format::kTable;
    std::vector<std::string> failures;
    bool all_undone = true;
    if (!options.dry_run) {
      auto ran = apply::run(client, *plan);
      if (!ran) return base::pass(std::move(ran).error(), "not all was changed: run apply again");
      for (auto& one : *ran) {
        all_undone = all_undone && one.is_undone;
        failures.push_back(std::move(one.sentence));
      }
    }
    apply::print(std::cout, options.format, plan->changes, failures);
    if (table && plan->changes.empty()) std::cout << "nothing to do\n";
    if (table && options.dry_run) std::cout << "a dry run: nothing was changed\n";
    size_t failed = 0;
    for (size_t i = 0; i < failures.size(); ++i) {
      if (failures[i].empty()) continue;
      ++failed;
      std::cerr << "vrdmactl: " << apply::text_of(plan->changes[i]) << ": "
                << base::printable(failures[i]) << '\n';
    }
    if (failed == 0) return {};
    return base::fail(EBUSY, name_of_file(options.input) + ": " + number_of(failed, "object") +
                                 " of " + std::to_string(failures.size()) +
                                 " could not be changed, and " +
                                 (!all_undone   ? "not all of it is"
                                  : failed == 1 ? "is"
                                                : "are") +
                                 " as before");
  });
}

Outcome diff_file(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    const auto plan = plan_of(options, client);
    if (!plan) return base::pass(plan.error());
    apply::print(std::cout, options.format, plan->changes, {});
    if (plan->changes.empty()) return {};
    return base::fail(kDiffers,
                      number_of(plan->changes.size(), "object") + " would be changed by apply");
  });
}

Outcome export_file(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    const auto state = apply::ask(client);
    if (!state) return base::pass(state.error());
    std::cout << apply::written(*state);
    return {};
  });
}

}  // namespace vrdma::cli
