// A random generator of verbs with an oracle: every byte of every buffer is predicted, every
// completion counted. See README.md of this directory.
//
//   vrdma_integrity serve PATH MEMBERS SECONDS
//   vrdma_integrity join PATH NUMBER MEMBERS DEVICE GID_INDEX SEED [OPTIONS]
//
//   --unreliable   UC too: the members lose nothing on the way to each other
//   --kills        processes of the daemon are killed: an atomic in doubt may fail its link
//   --deaths       members are killed
//   --lossy        the way loses packets, and repeats some
//   --forks        the members fork
//   --from EPOCH   begins with this epoch
//   --without PART leaves a part out of the plan: kPartNames in plan.h
#include <getopt.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <string_view>

#include "tests/integrity/ledger.h"
#include "tests/integrity/runner.h"

namespace {

using integrity::counts;

template <class Names, class Numbers>
void print(const char* title, const Names& names, const Numbers& numbers) {
  std::printf("%s:", title);
  for (size_t i = 0; i < names.size(); ++i)
    std::printf(" %s %" PRIu64, names[i], static_cast<uint64_t>(numbers[i]));
  std::puts("");
}

void print_counts() {
  const auto& all = counts();
  std::printf("operations: %" PRIu64 " in %" PRIu64 " batches of %" PRIu64 " epochs, %" PRIu64
              " of them lost\n",
              all.operations(), all.batches, all.epochs, all.lost_epochs);
  print("requests", integrity::kKindNames, all.requests);
  print("ends", integrity::kWayNames, all.ends);
  print("ping-pongs", integrity::kSignNames, all.ping_pongs);
  std::printf("windows: %" PRIu64 " receives: %" PRIu64 " datagrams: %" PRIu64 " sent %" PRIu64
              " received events: %" PRIu64 " forks: %" PRIu64 "\n",
              all.windows, all.receives, all.datagrams_sent, all.datagrams_received,
              all.events.load(), all.forks);
  std::printf("of links that ended: %" PRIu64 " requests done, %" PRIu64
              " not; atomics in doubt: %" PRIu64 "\n",
              all.done_of_ended, all.undone, all.atomics_in_doubt);
}

uint64_t number(const char* text) { return std::strtoull(text, nullptr, 0); }

int join(int argc, char** argv) {
  static const option kOptions[] = {
      {"unreliable", no_argument, nullptr, 'u'},    {"kills", no_argument, nullptr, 'k'},
      {"deaths", no_argument, nullptr, 'd'},        {"lossy", no_argument, nullptr, 'l'},
      {"forks", no_argument, nullptr, 'f'},         {"from", required_argument, nullptr, 'e'},
      {"without", required_argument, nullptr, 'w'}, {nullptr, 0, nullptr, 0}};
  integrity::Options options;
  for (int one = 0; (one = ::getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    if (one == 'u') options.unreliable = true;
    if (one == 'k') options.kills = true;
    if (one == 'd') options.deaths = true;
    if (one == 'l') options.lossy = true;
    if (one == 'f') options.forks = true;
    if (one == 'e') options.first_epoch = static_cast<uint32_t>(number(optarg));
    if (one == 'w') {
      const auto& names = integrity::kPartNames;
      const auto found = std::find(names.begin(), names.end(), std::string_view(optarg));
      if (found == names.end()) return 2;
      options.without |= 1u << (found - names.begin());
    }
    if (one == '?') return 2;
  }
  char** const words = argv + optind;
  if (argc - optind != 7) return 2;
  options.number = static_cast<uint32_t>(number(words[2]));
  options.members = static_cast<uint32_t>(number(words[3]));
  options.device = words[4];
  options.gid_index = static_cast<uint8_t>(number(words[5]));
  options.seed = number(words[6]);
  integrity::place() = "member " + std::string(words[2]);
  integrity::Meeting meeting(words[1], options.number);
  integrity::Runner(options, &meeting).run();
  print_counts();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "serve") == 0)
    return integrity::serve(argv[2], static_cast<uint32_t>(number(argv[3])),
                            static_cast<uint32_t>(number(argv[4])));
  if (argc > 1 && std::strcmp(argv[1], "join") == 0)
    if (const int status = join(argc, argv); status != 2) return status;
  std::fputs("usage: see the head of tests/integrity/main.cc\n", stderr);
  return 2;
}
