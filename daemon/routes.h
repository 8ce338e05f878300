// The API as a table. A handler knows no sockets: it gets a request whose body is parsed, and
// answers now or later.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/audit.h"
#include "daemon/config.h"
#include "daemon/images.h"
#include "daemon/message.h"
#include "daemon/sandboxes.h"
#include "daemon/tokens.h"

namespace hutch::daemon {

class FilesProgram;
class ImageArchives;
class ImageKeeping;
class Info;
class SandboxPools;
class SandboxSnapshots;
class VolumeArchives;
class VolumeKeeping;
class Watching;
class Workspaces;

// What handlers work on; all borrowed.
struct Api {
  Loop& loop;
  const Config& config;
  Sandboxes& sandboxes;
  SandboxNetworks& networks;
  Images& images;
  Info& info;
  FilesProgram& files;
  Audit& audit;
  Worker& worker;
  ImageKeeping& image_keeping;
  ImageArchives& image_archives;
  Workspaces& workspaces;
  Watching& watching;
  SandboxSnapshots& snapshots;
  VolumeKeeping& volumes;
  VolumeArchives& volume_archives;
  SandboxPools* pools = nullptr;  // without it nothing is made ahead
};

struct Route {
  const char* method;   // or "ANY"
  const char* pattern;  // "{name}" is one segment, a last "{reference}" or "{path}" the rest, and
                        // "{rest}" all behind the slash as it was sent, maybe nothing
  Body body;
  const char* query;  // names of allowed query parameters between commas, or ""
  void (*handler)(Api& api, Request request, Responder responder);
  // The least that a token must have to call it over TCP (docs/access.md). A row without one is for
  // administrators.
  Role role = Role::kAdmin;
};

std::span<const Route> Routes();

// Whether a percent-encoded path fits a pattern; the values of its {names}, decoded.
bool MatchPath(std::string_view pattern, std::string_view path,
               std::vector<std::string>* parameters);

// The route that Dispatch() takes a request to; nullptr: there is none.
const Route* FindRoute(const Request& request);

// What the request's route does with a body; kNone when there is none.
Body BodyOf(const Request& request);

// Finds the route, checks query and body, calls the handler; answers kNotFound and kInvalidArgument
// itself.
void Dispatch(Api& api, Request request, Responder responder);

}  // namespace hutch::daemon
