// hutch-oci's --log: lines a shim can read.
#pragma once

#include <string>

#include "base/result.h"

namespace hutch::tools {

// Adds one line to the file: {"level","msg","time"} with format "json", else level="..." text.
// Nothing for an empty path. A log that cannot be written is no reason to fail.
// Whether lines can be added to it; makes it when it is not there.
Status CheckOciLog(const std::string& path);

void WriteOciLog(const std::string& path, const std::string& format, const char* level,
                 const std::string& message);

}  // namespace hutch::tools
