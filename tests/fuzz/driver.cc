// Runs a fuzz target without libFuzzer: random inputs from a seed that is printed, for some
// seconds.
//
//   fuzz_ring_entries [SECONDS [SEED]]
//
// It finds what is shallow, in every build and with every sanitizer; libFuzzer goes deeper
// (tests/fuzz/README.md).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  std::vector<uint8_t> input;
  while (std::chrono::steady_clock::now() < end) {
    // Half of the inputs are an earlier one with some bytes changed.
    if (input.empty() || random() % 2 == 0) {
      input.resize(random() % 1024 + 1);
      for (auto& byte : input) byte = static_cast<uint8_t>(random());
    } else {
      for (uint64_t i = random() % 8 + 1; i > 0; --i)
        input[random() % input.size()] =
            static_cast<uint8_t>(random() % 3 == 0 ? random() : random() % 4);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(runs));
  return runs > 0 ? 0 : 1;
}
