#include "rootfs/reference.h"

#include <algorithm>

#include "base/text.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMaxTagBytes = 128;
constexpr size_t kHexDigits = 64;
constexpr uint64_t kMaxPort = 65535;
constexpr char kDefaultTag[] = "latest";
// All names of Docker's own registry are one.
constexpr const char* kDockerHosts[] = {"docker.io", "index.docker.io", "registry-1.docker.io"};

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) { return IsLower(c) || IsDigit(c) || (c >= 'A' && c <= 'Z'); }

Error Invalid(std::string_view text, const std::string& why) {
  return Error{.code = Code::kInvalidArgument,
               .what = "not an image name: \"" + std::string(text.substr(0, 80)) + "\": " + why,
               .field = "reference"};
}

// Letters and digits with one of ". _ __" or any number of "-" between them.
bool IsComponent(std::string_view part) {
  const auto good = [](char c) { return IsLower(c) || IsDigit(c); };
  if (part.empty() || !good(part.front()) || !good(part.back())) return false;
  for (size_t i = 0; i < part.size();) {
    if (good(part[i])) {
      ++i;
      continue;
    }
    const auto begin = part.begin() + static_cast<ptrdiff_t>(i);
    const auto end = i + static_cast<size_t>(std::find_if(begin, part.end(), good) - begin);
    const std::string_view separator = part.substr(i, end - i);
    const bool dashes = separator.find_first_not_of('-') == std::string_view::npos;
    if (!dashes && separator != "." && separator != "_" && separator != "__") return false;
    i = end;
  }
  return true;
}

bool IsTag(std::string_view tag) {
  const auto word = [](char c) { return IsAlphanumeric(c) || c == '_'; };
  return !tag.empty() && tag.size() <= kMaxTagBytes && word(tag.front()) &&
         tag.find("..") == std::string_view::npos &&
         std::all_of(tag.begin(), tag.end(),
                     [&](char c) { return word(c) || c == '.' || c == '-'; });
}

bool IsHex(std::string_view text) {
  return text.size() == kHexDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool NamesAHost(std::string_view first) {
  return first == "localhost" || first.find_first_of(".:") != std::string_view::npos;
}

Status CheckRepository(std::string_view whole, const std::string& repository) {
  for (const std::string& part : Split(repository, '/')) {
    if (part.empty()) return Invalid(whole, "a part of the repository is empty");
    if (!IsComponent(part))
      return Invalid(whole, "the repository's \"" + part.substr(0, 80) +
                                "\" is not lower-case letters and digits with . _ or - in between");
  }
  return OkStatus();
}

// Takes "@sha256:.." off the end.
Status TakeDigest(std::string_view whole, std::string_view* rest, Reference* reference) {
  const size_t at = rest->find('@');
  if (at == std::string_view::npos) return OkStatus();
  reference->digest = rest->substr(at + 1);
  *rest = rest->substr(0, at);
  return HexOf(reference->digest).has_value()
             ? OkStatus()
             : Invalid(whole, "the digest is not sha256: and 64 lower-case hex digits");
}

Status TakeTag(std::string_view whole, std::string_view* rest, Reference* reference) {
  const size_t colon = rest->rfind(':'), slash = rest->rfind('/');
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash)) {
    reference->tag = rest->substr(colon + 1);
    *rest = rest->substr(0, colon);
    return IsTag(reference->tag)
               ? OkStatus()
               : Invalid(whole, "the tag is not 1 to 128 letters, digits, _ . or - without \"..\"");
  }
  if (reference->digest.empty()) reference->tag = kDefaultTag;
  return OkStatus();
}

}  // namespace

bool IsRegistryHost(std::string_view host) {
  const size_t colon = host.find(':');
  const std::string_view name = host.substr(0, colon);
  if (colon != std::string_view::npos) {
    const auto port = ParseUint(host.substr(colon + 1), kMaxPort);
    if (!port || *port == 0 || host[colon + 1] == '0') return false;
  }
  // "sha256:1" would be read as a digest elsewhere.
  if (name.empty() || name.size() > 253 || (name == "sha256" && name != host)) return false;
  for (const std::string& label : Split(name, '.')) {
    const auto good = [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_'; };
    if (label.empty() || label.size() > 63 || !IsAlphanumeric(label.front()) ||
        !IsAlphanumeric(label.back()) || !std::all_of(label.begin(), label.end(), good))
      return false;
  }
  return true;
}

std::string Reference::ToString() const {
  return host + "/" + repository + (tag.empty() ? "" : ":" + tag) +
         (digest.empty() ? "" : "@" + digest);
}

Result<Reference> ParseReference(std::string_view text, const std::string& default_registry) {
  Reference reference;
  if (text.empty()) return Invalid(text, "it is empty");
  if (IsHex(text) || HexOf(std::string(text)).has_value())
    return Invalid(text, "an id or a digest alone does not say where the image is");
  std::string_view rest = text;
  RETURN_IF_ERROR(TakeDigest(text, &rest, &reference));
  RETURN_IF_ERROR(TakeTag(text, &rest, &reference));
  const size_t slash = rest.find('/');
  const bool has_host = slash != std::string_view::npos && NamesAHost(rest.substr(0, slash));
  if (!has_host && default_registry.empty()) return Invalid(text, "it names no registry");
  reference.host = has_host ? std::string(rest.substr(0, slash)) : default_registry;
  reference.repository = has_host ? rest.substr(slash + 1) : rest;
  std::transform(reference.host.begin(), reference.host.end(), reference.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (!IsRegistryHost(reference.host))
    return Invalid(text, "the registry's \"" + reference.host.substr(0, 80) +
                             "\" is not a host name with or without a port");
  RETURN_IF_ERROR(CheckRepository(text, reference.repository));
  for (const char* host : kDockerHosts)
    if (reference.host == host) reference.host = kDefaultRegistry;
  if (reference.host == kDefaultRegistry && reference.repository.find('/') == std::string::npos)
    reference.repository = "library/" + reference.repository;
  const size_t name_bytes =
      reference.host.size() + 1 + reference.repository.size() + 1 + reference.tag.size();
  if (name_bytes > kMaxReferenceBytes)
    return Invalid(text, "more than " + std::to_string(kMaxReferenceBytes) + " bytes");
  return reference;
}

}  // namespace hutch::rootfs
