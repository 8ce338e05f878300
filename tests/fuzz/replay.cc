// A main for a fuzz target that is built without libFuzzer: runs the empty input and then every
// seed once. A directory that is not there holds no seeds.
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxSeedBytes = 16u << 20;

void RunOne(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  RunOne("");
  int count = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string directory = argv[i];
    if (!hutch::PathExists(directory)) continue;
    const auto names = hutch::ListDirectory(directory);
    if (!names) return 1;
    for (const std::string& name : *names) {
      const auto bytes = hutch::ReadFile(directory + "/" + name, kMaxSeedBytes);
      if (!bytes) return 1;
      RunOne(*bytes);
      ++count;
    }
  }
  std::printf("%d inputs\n", count);
  return 0;
}
