// The first bytes of a connection: a name is found only in whole hellos, and however they come.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "network/egress/client_hello.h"
#include "network/egress/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hutch::network;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ClientHello whole = ReadClientHello(bytes);
  const bool named = !whole.name.empty();
  if (named && whole.state == ClientHello::State::kNeedMore) std::abort();
  if (size >= kMaxHelloBytes && whole.state == ClientHello::State::kNeedMore) std::abort();
  if (whole.state == ClientHello::State::kNotTls && LooksLikeTls(bytes)) std::abort();
  // What was decided early stays decided: more bytes change nothing.
  for (size_t at = 0; at < size && at < 2048; ++at) {
    const ClientHello early = ReadClientHello(bytes.substr(0, at));
    if (early.state == ClientHello::State::kNeedMore) continue;
    if (early.state != whole.state || early.name != whole.name) std::abort();
    break;
  }
  return 0;
}
