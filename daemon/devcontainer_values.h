// Values of devcontainer.json: variables, commands, sizes, mounts. Pure; used by devcontainer.cc.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "daemon/create_request.h"
#include "daemon/devcontainer.h"
#include "daemon/volume_request.h"
#include "oci/json.h"

namespace hutch::daemon {

Error TemplateInvalid(std::string what, std::string field);
// For what is understood and not done.
Error TemplateRefused(std::string what, std::string field, std::string hint);

// Where a text with ${variables} stands: decides what they may name.
enum class VariablePlace {
  kRemoteEnv,  // ${containerEnv:X} stays, to be resolved when the sandbox is made
  kElsewhere,  // it is refused
};
// Replaces what the specification defines; anything else between ${ and } is left as it is, for
// shells. hutchd's own environment is never read: ${localEnv:X} is its default, or refused.
Result<std::string> ReplaceVariables(const std::string& text, const std::string& property,
                                     const std::string& workspace, VariablePlace place);

// A string, without NUL, with its variables replaced.
Result<std::string> ReadText(const oci::Json& value, const std::string& property,
                             const std::string& workspace);
// A lifecycle property: a string for /bin/sh -c, an array, or an object of those.
Result<TemplateStage> ReadStage(const oci::Json& value, const char* property,
                                const std::string& workspace);
// "8gb", "512mb": powers of 1024, as the specification's own tools read them.
Result<uint64_t> ReadDevcontainerSize(const oci::Json& value, const std::string& property);
// forwardPorts and appPort: 3000, "3000", "localhost:3000", "8080:3000", or an array of those.
Result<std::vector<PortFacts>> ReadPorts(const oci::Json& value, const std::string& property);
// One item of "mounts": a string as of docker's --mount, or an object. A tmpfs, or a volume:
// without a source an empty directory that goes with the sandbox, as the image's own volumes do.
Result<std::variant<WritableDirectory, VolumeFields>> ReadMount(const oci::Json& value,
                                                                const std::string& property,
                                                                const std::string& workspace);

}  // namespace hutch::daemon
