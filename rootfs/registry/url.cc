#include "rootfs/registry/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "rootfs/reference.h"

namespace hutch::rootfs::registry {
namespace {

constexpr size_t kMaxUrlBytes = 8192;

struct FreeUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};
using Handle = std::unique_ptr<CURLU, FreeUrl>;

std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (::curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return "";
  std::string out = text;
  ::curl_free(text);
  return out;
}

Error Invalid(const std::string& why) {
  return Error{.code = Code::kInvalidArgument, .what = "not a URL that is followed: " + why};
}

}  // namespace

std::string Url::Authority() const {
  const bool own = port == (scheme == "https" ? "443" : "80");
  return own ? host : host + ":" + port;
}

Result<Url> ParseUrl(const std::string& text, const Url* base) {
  if (text.empty() || text.size() > kMaxUrlBytes) return Invalid("empty or too long");
  const auto printable = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::all_of(text.begin(), text.end(), printable)) return Invalid("characters outside ASCII");
  const Handle handle(::curl_url());
  CHECK(handle != nullptr);
  if (base != nullptr &&
      ::curl_url_set(handle.get(), CURLUPART_URL, base->ToString().c_str(), 0) != CURLUE_OK)
    return Invalid("malformed");
  if (::curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK)
    return Invalid("malformed, another scheme, or with a user");
  Url url;
  url.scheme = Part(handle.get(), CURLUPART_SCHEME);
  url.host = Part(handle.get(), CURLUPART_HOST);
  url.port = Part(handle.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (url.scheme != "https" && url.scheme != "http") return Invalid("scheme " + url.scheme);
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (!IsRegistryHost(url.host + ":" + url.port)) return Invalid("its host");
  const std::string path = Part(handle.get(), CURLUPART_PATH);
  const std::string query = Part(handle.get(), CURLUPART_QUERY);
  url.rest = (path.empty() ? "/" : path) + (query.empty() ? "" : "?" + query);
  return url;
}

std::string UrlEncode(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  std::string out;
  for (const char c : text) {
    const bool plain = kPlain.find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : "%" + HexEncode({&c, 1});
  }
  return out;
}

}  // namespace hutch::rootfs::registry
