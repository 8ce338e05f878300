// The keys that tell a request to make a sandbox from its repetition: the session key in its body,
// and its Idempotency-Key. Both belong to the user at the other end of the socket. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/message.h"
#include "oci/json.h"

namespace hutch::daemon {

struct OwnedKey {
  uint32_t owner = 0;  // user id
  std::string key = {};
  auto operator<=>(const OwnedKey&) const = default;
};

// What each field of a request holds, as 32 hexadecimal digits by its name ("image",
// "limits.cpus"). Two requests that mean the same literally have the same: the order of members,
// members that are null, empty objects and 1.0 for 1 make no difference.
using RequestDigests = std::map<std::string, std::string>;
RequestDigests DigestRequest(const oci::Json& request);
// The name of a field that differs, `ignored` left out.
std::optional<std::string> FirstDifference(const RequestDigests& one, const RequestDigests& other,
                                           std::string_view ignored = {});

// kInvalidArgument, field "session_key", for what is none; empty is none given, and fine.
Status CheckSessionKey(const std::string& key);
// The value of the header: visible ASCII, with or without the quotes of a structured field. "" for
// none; kInvalidArgument, field "Idempotency-Key".
Result<std::string> ParseIdempotencyKey(std::string_view header);

struct CreateKeys {
  uint32_t owner = 0;
  std::string session = {}, idempotency = {};  // empty: none
  RequestDigests digests = {};

  bool empty() const { return session.empty() && idempotency.empty(); }
};
// Of a request whose body is not checked yet. Digests only where there is a key.
Result<CreateKeys> ReadCreateKeys(const Request& request);

// kExists: the key is in use for a request that says something else in `field`.
Error KeyConflict(const char* key_name, const std::string& field);

}  // namespace hutch::daemon
