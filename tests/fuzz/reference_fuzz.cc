// Names of images: whatever the bytes, an answer; what is taken has one canonical form, which can
// stand in a URL and a path.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rootfs/image_source.h"
#include "rootfs/limits.h"
#include "rootfs/reference.h"
#include "rootfs/registry/url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hutch::rootfs::ParseReference;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto reference = ParseReference(text, hutch::rootfs::kDefaultRegistry);
  if (reference.has_value()) {
    const std::string canonical = reference->ToString();
    const auto again = ParseReference(canonical, "another.example");
    if (!again.has_value() || again->ToString() != canonical) std::abort();
    const auto name = hutch::rootfs::NormalReference(canonical);
    if (!name.has_value() || *name != canonical) std::abort();
    if (canonical.find("..") != std::string::npos) std::abort();
    const std::string url = "https://" + reference->host + "/v2/" + reference->repository;
    const auto parsed = hutch::rootfs::registry::ParseUrl(url);
    if (!parsed.has_value() || parsed->rest != "/v2/" + reference->repository) std::abort();
  }
  const auto base = hutch::rootfs::registry::ParseUrl("https://r.example/v2/");
  const auto url = hutch::rootfs::registry::ParseUrl(text, &*base);
  if (url.has_value() && !hutch::rootfs::IsRegistryHost(url->Authority())) std::abort();
  return 0;
}
