// What registries and helpers say about authentication: whatever the bytes, a bounded answer.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rootfs/registry/challenge.h"
#include "rootfs/registry/credentials.h"
#include "rootfs/registry/documents.h"
#include "rootfs/registry/exchange.h"
#include "rootfs/registry/limits.h"
#include "rootfs/registry/session.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hutch::rootfs::registry;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto challenges = ParseChallenges(text);
  if (challenges.size() > kMaxChallenges) std::abort();
  for (const Challenge& challenge : challenges)
    if (challenge.parameters.size() > kMaxChallengeParameters) std::abort();
  const auto config = ParseDockerConfig(text);
  if (config.has_value())
    for (const auto& [host, credential] : config->auths)
      if (host.empty() || credential.IsEmpty()) std::abort();
  const auto token = ParseTokenReply(text);
  if (token.has_value() && token->find_first_of("\r\n ") != std::string::npos) std::abort();
  hutch::IgnoreError(ParseHelperAnswer(text), "any answer is right");
  hutch::IgnoreError(MediaTypeOf(text, text.substr(0, 60)), "any answer is right");
  if (RetryAfterSeconds(text, 0) > 1'000'000'000) std::abort();
  return 0;
}
