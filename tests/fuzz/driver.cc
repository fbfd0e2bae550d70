// Runs a fuzz target without libFuzzer: first every input of its corpus, then random changes of
// those, from a seed that is printed, for some seconds.
//
//   fuzz_ring_entries CORPUS [SECONDS [SEED]]
//
// VRDMA_FUZZ_SECONDS in the environment replaces SECONDS. The driver finds shallow faults, in every
// build and with every sanitizer; libFuzzer goes deeper (tests/fuzz/README.md).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

// In the order of the names, so that a seed means the same everywhere.
std::vector<Bytes> read_corpus(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(directory))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// Half of the inputs are the one before with some bytes changed, a quarter each one of the corpus
// and noise.
void change(Bytes& input, const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const uint64_t choice = random() % 4;
  if (choice == 0 || input.empty()) {
    input.resize(random() % 1024 + 1);
    for (auto& byte : input) byte = static_cast<uint8_t>(random());
    return;
  }
  if (choice == 1 && !corpus.empty()) input = corpus[random() % corpus.size()];
  if (input.empty()) return;
  for (uint64_t i = random() % 8 + 1; i > 0; --i)
    input[random() % input.size()] =
        static_cast<uint8_t>(random() % 3 == 0 ? random() : random() % 4);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [SECONDS [SEED]]\n", argv[0]);
    return 2;
  }
  const char* const wanted = std::getenv("VRDMA_FUZZ_SECONDS");
  const double seconds = wanted != nullptr ? std::atof(wanted) : argc > 2 ? std::atof(argv[2]) : 5;
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : std::random_device()();
  const std::vector<Bytes> corpus = read_corpus(argv[1]);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const Bytes& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  Bytes input;
  while (std::chrono::steady_clock::now() < end) {
    change(input, corpus, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  std::printf("%zu inputs of the corpus, %llu others\n", corpus.size(),
              static_cast<unsigned long long>(runs));
  return runs > 0 ? 0 : 1;
}
