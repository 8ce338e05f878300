// hutch-oci's --log: lines a shim can read.
#pragma once

#include <string>

namespace hutch::tools {

// {"level","msg","time"} with format "json", else level=... text; with its newline.
std::string OciLogLine(const std::string& format, const char* level, const std::string& message);

// Adds one line to the file. Nothing for an empty path. A log that cannot be written is no reason
// to fail.
void WriteOciLog(const std::string& path, const std::string& format, const char* level,
                 const std::string& message);

}  // namespace hutch::tools
