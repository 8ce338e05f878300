// URLs as registries give them: http and https only, no user in them, a host that may stand in a
// path, nothing that reads in two ways (libcurl's own parser takes them apart).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::rootfs::registry {

struct Url {
  std::string scheme;  // "https" or "http"
  std::string host;    // lower case
  std::string port;    // always given
  std::string rest;    // path and query, from the "/"

  // "host", or "host:port" where the port is not the scheme's own.
  std::string Authority() const;
  // "https://host[:port]": all that may stand in a message, since queries hold signatures.
  std::string Origin() const { return scheme + "://" + Authority(); }
  std::string ToString() const { return Origin() + rest; }
  bool IsPlain() const { return scheme == "http"; }
};

// `base`: what a relative one starts from; null for none. kInvalidArgument.
Result<Url> ParseUrl(const std::string& text, const Url* base = nullptr);

// For a query or a form: everything but letters, digits and -._~ as %XX.
std::string UrlEncode(std::string_view text);

}  // namespace hutch::rootfs::registry
