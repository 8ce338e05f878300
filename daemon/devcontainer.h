// Templates for sandboxes: devcontainer.json (the Development Containers specification) turned into
// the body of POST /v1/sandboxes and the commands that follow. Pure. docs/templates.md says what
// becomes of each property; nothing is ignored but what the specification leaves to other tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/create_request.h"
#include "oci/json.h"

namespace hutch::daemon {

struct TemplateCommand {
  std::string name;  // of an object's member; else empty
  std::vector<std::string> args;
};

// One lifecycle property. Its commands run at the same time.
struct TemplateStage {
  const char* property;  // "postCreateCommand": a string literal
  std::vector<TemplateCommand> commands;
};

// What the host must be able to give, as least limits; 0: nothing is said.
struct TemplateNeeds {
  double cpus = 0;
  uint64_t memory_bytes = 0, disk_bytes = 0;
};

struct Template {
  std::string title, description;
  std::string image;
  oci::Json settings = oci::Json::object();  // a body of POST /v1/sandboxes, "image" included
  RemoteEnv remote_env;                      // may name ${containerEnv:X}
  std::vector<WritableDirectory> directories;
  TemplateNeeds needs;
  std::vector<TemplateStage> stages;  // in the order they run
  size_t awaited = 0;                 // so many of them before the sandbox counts as made
  std::string wait_for;               // the property that says so, or ""
};

// The text of a devcontainer.json, comments and all. kInvalidArgument or kUnsupported with the
// property's name as the field, kLimit past a ceiling of the operator's, kTooLarge beyond
// kMaxDevcontainerBytes. Settings that weaken a sandbox are kForbidden unless the configuration has
// template_relax.
Result<Template> ParseDevcontainer(std::string_view text, const Config& config);

// What GET /v1/templates/{name} shows of it.
oci::Json TemplateJson(const Template& made);

// The request's body over a template's settings: objects member by member, null takes a member out.
oci::Json MergeRequest(const oci::Json& settings, const oci::Json& request);

// kInvalidArgument for limits below what the template says it needs.
Status CheckNeeds(const TemplateNeeds& needs, const SandboxFields& fields);

// ${containerEnv:X} and ${containerEnv:X:default} replaced by what the sandbox has as X. kLimit
// when that is more than kMaxEnvBytes.
Result<RemoteEnv> ResolveRemoteEnv(const RemoteEnv& remote_env,
                                   const std::vector<std::string>& container_env);

}  // namespace hutch::daemon
