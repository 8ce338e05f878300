// Archives between the daemon and a file, or standard output and input.
#pragma once

#include <string>

#include "base/result.h"
#include "oci/json.h"
#include "tools/commands.h"

namespace hutch::tools {

struct ArchiveStream {
  std::string path;    // empty or "-": standard output or input, which no terminal may be
  const char* option;  // how a file is given, for the hint: "-o FILE"
  const char* stage;   // for the meter
  std::string subject;
};

// The value is the exit code. A file appears whole or not at all (tools/whole_file.h).
Result<int> DownloadArchive(Context& context, const Request& request, const ArchiveStream& stream);
// The daemon's reply.
Result<oci::Json> UploadArchive(Context& context, const Request& request,
                                const ArchiveStream& stream);

}  // namespace hutch::tools
