// Runs hutch-unpack and reads its report. See rootfs/unpack/hutch_unpack.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct UnpackReport {
  std::string digest, diff_id;  // of the bytes as they came, and decompressed
  uint64_t packed_bytes = 0, bytes = 0, entries = 0, dropped = 0;
  std::vector<std::string> opaque;  // paths below the directory
};

// The report's text; untrusted in as far as the archive's names are in it. kInvalidArgument for
// anything malformed.
Result<UnpackReport> ParseUnpackReport(std::string_view text);

enum class UnpackMode { kLayer, kArchive };
// Unpacks what input_fd (borrowed) yields into an existing directory and waits. Errors of the
// unpacker come back as its own codes. kUnavailable when the program is not installed. Thread-safe.
Result<UnpackReport> RunUnpack(UnpackMode mode, int input_fd, const std::string& directory);

// A program of ours: beside this one, in ../bin, ../libexec/hutch or ../../libexec/hutch. kNotFound
// lists where it was looked for.
Result<std::string> FindProgram(const std::string& name);

}  // namespace hutch::rootfs
