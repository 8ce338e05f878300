#include "daemon/secrets.h"

#include <algorithm>

#include "base/file.h"
#include "base/operator_file.h"
#include "daemon/limits.h"
#include "network/host_names.h"
#include "network/rule_text.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr std::string_view kSuffix = ".json";

// A secret in one of these would change where a request ends or whom it goes to, not who asks.
constexpr std::string_view kTakenHeaders[] = {"host",
                                              "content-length",
                                              "transfer-encoding",
                                              "connection",
                                              "upgrade",
                                              "te",
                                              "trailer",
                                              "keep-alive",
                                              "proxy-connection",
                                              "expect",
                                              "via",
                                              "proxy-authorization",
                                              "forwarded"};

Error Invalid(const std::string& what) {
  return Error{.code = Code::kInvalidArgument, .what = what};
}

// RFC 9110, 5.6.2.
bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

Status CheckHeader(const std::string& header) {
  if (header.empty() || header.size() > kMaxSecretHeaderBytes ||
      !std::all_of(header.begin(), header.end(), IsTokenChar))
    return Invalid("\"header\" is no name of a header");
  std::string lower = header;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (std::find(std::begin(kTakenHeaders), std::end(kTakenHeaders), lower) !=
      std::end(kTakenHeaders))
    return Invalid("\"header\" is one that frames or routes requests");
  return OkStatus();
}

// Visible bytes with spaces between them (RFC 9110, 5.5); the message must not tell the value.
Status CheckValue(const std::string& value) {
  const bool plain =
      std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 0x7f; });
  if (value.empty() || value.size() > kMaxSecretValueBytes)
    return Invalid("\"value\" must have 1 to " + std::to_string(kMaxSecretValueBytes) + " bytes");
  if (!plain || value.front() == ' ' || value.back() == ' ')
    return Invalid("\"value\" must be printable ASCII on one line, no space at its ends");
  return OkStatus();
}

std::string PathOf(const std::string& dir, const std::string& name) {
  return dir + "/" + name + std::string(kSuffix);
}

}  // namespace

Result<network::Secret> ParseSecret(std::string_view text) {
  const auto json = oci::ParseJson(text, {.max_bytes = kMaxSecretFileBytes, .max_depth = 4});
  // What the parser says may quote the text.
  if (!json.has_value()) return Invalid("is no JSON object without repeated keys");
  network::Secret secret;
  oci::ObjectReader reader(*json, "");
  reader.Strings("hosts", &secret.hosts, kMaxSecretHosts).String("header", &secret.header);
  reader.String("value", &secret.value);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  if (secret.hosts.empty()) return Invalid("\"hosts\" must have one host at least");
  for (std::string& host : secret.hosts) {
    const auto normal = network::ParseRuleHost(host);
    if (!normal.has_value()) return Invalid("\"" + host + "\" " + normal.error().what);
    host = *normal;
  }
  RETURN_IF_ERROR(CheckHeader(secret.header));
  RETURN_IF_ERROR(CheckValue(secret.value));
  return secret;
}

Result<network::Secret> LoadSecret(const std::string& dir, const std::string& name) {
  if (!network::IsNetworkName(name)) return Invalid("no name of a secret");
  const auto missing = [&] {
    return Error{
        .code = Code::kNotFound,
        .what = "there is no secret \"" + name + "\"",
        .hint = dir.empty() ? "network.secrets_dir is empty" : "it would be a file in " + dir};
  };
  if (dir.empty()) return missing();
  const auto text = ReadOperatorFile(PathOf(dir, name), kMaxSecretFileBytes, Readers::kOwnerOnly);
  if (!text.has_value()) return text.error().code == Code::kNotFound ? missing() : text.error();
  RETURN_IF_ERROR(CheckOperatorDirectory(dir));
  auto secret = ParseSecret(*text);
  if (secret.has_value()) return secret;
  Error error = std::move(secret).error();
  error.what = PathOf(dir, name) + ": " + error.what;
  error.field.clear();  // of the file, not of anybody's request
  return error;
}

Result<std::vector<FoundSecret>> ListSecrets(const std::string& dir) {
  std::vector<FoundSecret> found;
  if (dir.empty() || !PathExists(dir)) return found;
  RETURN_IF_ERROR(CheckOperatorDirectory(dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ListDirectory(dir));
  for (const std::string& file : files) {
    if (!file.ends_with(kSuffix)) continue;
    const std::string name = file.substr(0, file.size() - kSuffix.size());
    if (!network::IsNetworkName(name)) continue;
    if (found.size() == kMaxSecrets)
      return Error{.code = Code::kLimit,
                   .what = dir + " holds more than " + std::to_string(kMaxSecrets) + " secrets"};
    found.push_back({name, LoadSecret(dir, name)});
  }
  return found;
}

}  // namespace hutch::daemon
