// Downloads into a file that appears whole or not at all.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "tools/commands.h"

namespace hutch::tools {

struct WholeFile {
  std::string path;
  mode_t mode = 0;    // 0: what the umask leaves
  const char* stage;  // for the meter
  std::string subject;
};

// Beside its destination until it is whole; a pipe or a device is written to as it is. The value is
// the exit code: 128 + n when a signal ended it. Nothing is left of one that failed.
Result<int> DownloadWhole(Context& context, const Request& request, const WholeFile& file);

}  // namespace hutch::tools
