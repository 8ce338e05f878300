// The lines that a hutch-files process answers with. It runs inside a sandbox, where the tenant can
// do to it what it likes: every line is untrusted, and nothing of it reaches a client or a header
// before its name and type were looked up in one table.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::daemon {

struct FileLine {
  std::string kind;  // "ok", "entry", "match", "result", "event", "done", "error"
  oci::Json value;   // an object of known members
};

// kUnavailable for anything else than an object of one known member. Unknown members of the value
// are left out.
Result<FileLine> ParseFileLine(std::string_view line);

// The error of an "error" line: its code by name, its message bounded.
Error FileErrorOf(const oci::Json& value);

// Puts a path as "<name>", or as "<name>_base64" where it is no UTF-8.
void PutPath(oci::Json& object, const std::string& name, const std::string& path);

// The entity tag in an answer, without quotes; kUnavailable when it is none that files/ makes.
Result<std::string> EntityTagOf(const oci::Json& entry);

}  // namespace hutch::daemon
