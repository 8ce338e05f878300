// "ID:/path" and "path": what cp and the files commands name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::tools {

struct Place {
  std::string sandbox;  // "" for this host
  std::string path;     // "-" for a tar on a standard stream
  bool remote() const { return !sandbox.empty(); }
  bool is_tar_stream() const { return sandbox.empty() && path == "-"; }
};

// What stands before the first ':' is a sandbox, unless there is a '/' or '.' at its begin
// ("./a:b"). kInvalidArgument for a path in a sandbox that does not begin with '/', and for an
// empty one.
Result<Place> ParsePlace(const std::string& text);
// The same, and kInvalidArgument for one of this host.
Result<Place> ParseRemotePlace(const std::string& text);

// "/v1/sandboxes/box/files/a/b": the path without its first slash, its segments encoded.
std::string FileTarget(const Place& place);
// "b" of "/a/b/"; "" of "/", "." and "/a/.": then a directory's contents are meant.
std::string BaseName(std::string_view path);
std::string JoinPath(std::string_view directory, std::string_view name);
// The directory that holds it: "/a" of "/a/b", "." of "b".
std::string ParentOf(std::string_view path);
// A glob pattern that matches this name alone.
std::string GlobOfName(std::string_view name);

}  // namespace hutch::tools
