#include "daemon/create_keys.h"

#include <algorithm>
#include <cmath>

#include "daemon/limits.h"
#include "rootfs/digest.h"

namespace hutch::daemon {
namespace {

using oci::Json;

constexpr size_t kDigestDigits = 32;
constexpr double kMaxExact = 9007199254740992.0;  // 2^53
// Objects of a few members, which are told one by one.
constexpr const char* kOpened[] = {"limits", "timeouts", "rootfs"};

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

// As deep as the parser of requests allows.
Json Canonical(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < kMaxExact)
      return number < 0 ? Json(static_cast<int64_t>(number)) : Json(static_cast<uint64_t>(number));
  }
  if (value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() >= 0)
    return Json(static_cast<uint64_t>(value.get<int64_t>()));
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(Canonical(item));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [name, member] : value.items())
    if (!member.is_null()) object[name] = Canonical(member);
  return object;
}

std::string ShortDigest(const Json& value) {
  const std::string text = rootfs::DigestOf(oci::PrintJson(value));
  return text.substr(text.find(':') + 1, kDigestDigits);
}

bool IsOpened(const std::string& name) {
  return std::any_of(std::begin(kOpened), std::end(kOpened),
                     [&](const char* opened) { return name == opened; });
}

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

RequestDigests DigestRequest(const Json& request) {
  RequestDigests digests;
  if (!request.is_object()) return digests;
  const Json canonical = Canonical(request);
  for (const auto& [name, value] : canonical.items()) {
    if (value.is_object() && value.empty()) continue;
    if (!value.is_object() || !IsOpened(name)) {
      digests[name] = ShortDigest(value);
      continue;
    }
    for (const auto& [member, inner] : value.items())
      digests[name + "." + member] = ShortDigest(inner);
  }
  return digests;
}

std::optional<std::string> FirstDifference(const RequestDigests& one, const RequestDigests& other,
                                           std::string_view ignored) {
  for (const RequestDigests* digests : {&one, &other})
    for (const auto& [field, digest] : *digests) {
      const auto in_one = one.find(field), in_other = other.find(field);
      const bool same =
          in_one != one.end() && in_other != other.end() && in_one->second == in_other->second;
      if (!same && field != ignored) return field;
    }
  return std::nullopt;
}

Status CheckSessionKey(const std::string& key) {
  const auto fits = [](char c) {
    return IsAlnum(c) || std::string_view("._:/@+=~-").find(c) != std::string_view::npos;
  };
  if (key.empty()) return OkStatus();
  if (key.size() > kMaxSessionKeyBytes || !IsAlnum(key[0]) ||
      !std::all_of(key.begin(), key.end(), fits))
    return Invalid("must be [a-zA-Z0-9][a-zA-Z0-9._:/@+=~-]{0,127}", "session_key");
  return OkStatus();
}

Result<std::string> ParseIdempotencyKey(std::string_view header) {
  if (header.empty()) return std::string();
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"')
    header = header.substr(1, header.size() - 2);
  const auto visible = [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; };
  if (header.empty() || header.size() > kMaxIdempotencyKeyBytes ||
      !std::all_of(header.begin(), header.end(), visible))
    return Invalid("must be 1 to " + std::to_string(kMaxIdempotencyKeyBytes) +
                       " visible characters of ASCII without quotes",
                   "Idempotency-Key");
  return std::string(header);
}

Result<CreateKeys> ReadCreateKeys(const Request& request) {
  CreateKeys keys{.owner = request.peer.uid};
  ASSIGN_OR_RETURN(keys.idempotency, ParseIdempotencyKey(request.Header("Idempotency-Key")));
  if (request.json.is_object() && request.json.contains("session_key")) {
    const Json& session = request.json["session_key"];
    if (!session.is_null() && !session.is_string())
      return Invalid("session_key must be a string", "session_key");
    if (session.is_string()) keys.session = session.get<std::string>();
    if (session.is_string() && keys.session.empty())
      return Invalid("must not be empty", "session_key");
    RETURN_IF_ERROR(CheckSessionKey(keys.session));
  }
  if (!keys.empty()) keys.digests = DigestRequest(request.json);
  return keys;
}

Error KeyConflict(const char* key_name, const std::string& field) {
  return Error{.code = Code::kExists,
               .what = std::string(key_name) + " is in use for a request with another " + field,
               .field = field,
               .hint = "repeat the request as it was, or take another key"};
}

}  // namespace hutch::daemon
