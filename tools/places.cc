#include "tools/places.h"

#include "tools/client.h"

namespace hutch::tools {
namespace {

Error BadPlace(const std::string& text, const char* what) {
  return Error{.code = Code::kInvalidArgument,
               .what = "\"" + text + "\" " + what,
               .hint = "write ID:/path for a path in a sandbox, ./name for one of this host"};
}

std::string_view WithoutSlashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

Result<Place> ParsePlace(const std::string& text) {
  if (text.empty()) return BadPlace(text, "names nothing");
  const size_t colon = text.find(':');
  const bool local =
      colon == std::string::npos || colon == 0 || text[0] == '.' || text.find('/') < colon;
  if (local) return Place{.sandbox = "", .path = text};
  if (colon + 1 == text.size() || text[colon + 1] != '/')
    return BadPlace(text, "has no absolute path behind its colon");
  return Place{.sandbox = text.substr(0, colon), .path = text.substr(colon + 1)};
}

Result<Place> ParseRemotePlace(const std::string& text) {
  ASSIGN_OR_RETURN(Place place, ParsePlace(text));
  if (!place.remote()) return BadPlace(text, "is no path in a sandbox");
  return place;
}

std::string FileTarget(const Place& place) {
  std::string target = "/v1/sandboxes/" + EncodeSegment(place.sandbox) + "/files/";
  std::string_view path = place.path;
  while (path.starts_with('/')) path.remove_prefix(1);
  for (size_t slash = 0; slash != std::string_view::npos;) {
    slash = path.find('/');
    target += EncodeSegment(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    target += '/';
    path.remove_prefix(slash + 1);
  }
  return target;
}

std::string BaseName(std::string_view path) {
  path = WithoutSlashes(path);
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return name == "." || name == ".." ? std::string() : std::string(name);
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (name.empty()) return std::string(directory);
  std::string joined(directory);
  if (!joined.ends_with('/')) joined += '/';
  return joined.append(name);
}

std::string ParentOf(std::string_view path) {
  path = WithoutSlashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string GlobOfName(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[]{}\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace hutch::tools
