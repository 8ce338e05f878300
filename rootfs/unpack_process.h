// Runs hutch-unpack and reads its report. See rootfs/unpack/hutch_unpack.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "rootfs/child_program.h"

namespace hutch::rootfs {

struct IndexedFile {  // of a tar
  enum class Kind { kFile, kHardLink, kSymlink };
  Kind kind = Kind::kFile;
  std::string path;
  std::string target;  // of a link
  uint64_t offset = 0, size = 0;
};

struct UnpackReport {
  std::string digest, diff_id;  // of the bytes as they came, and decompressed
  uint64_t entries = 0, disk_bytes = 0, dropped = 0, remapped = 0;
  std::vector<std::string> opaque;  // directories, below the target
  std::vector<IndexedFile> files;
  std::optional<Error>
      error;  // what the unpacker found wrong; the digest may be known all the same
};

// The report's text. The unpacker is not trusted: kInternal for anything malformed.
Result<UnpackReport> ParseUnpackReport(std::string_view text);

enum class UnpackMode { kLayer, kVerify, kInflate, kIndex, kTree };

struct UnpackRequest {
  UnpackMode mode;
  int input_fd;           // borrowed; read from where it stands
  uint64_t size_bytes;    // at most so much of it
  std::string directory;  // exists, empty: what the unpacker is confined to
  int output_fd = -1;     // kInflate: where to; borrowed
};

class UnpackProcess {
 public:
  // kUnavailable when the program is not installed.
  static Result<UnpackProcess> Start(const UnpackRequest& request);

  int report_fd() const { return report_.get(); }
  // Takes what is there of the report; true at its end. Blocks unless report_fd() is readable.
  Result<bool> Read();
  // Waits for the end; call it after Read() said true. The report may hold an error.
  Result<UnpackReport> Finish();

 private:
  UnpackProcess(ChildProgram program, UniqueFd report)
      : program_(std::move(program)), report_(std::move(report)) {}
  ChildProgram program_;
  UniqueFd report_;
  std::string text_;
};

// Start, Read and Finish in one, with kUnpackSeconds as the limit. A report with an error comes
// back as that error.
Result<UnpackReport> RunUnpack(const UnpackRequest& request);

}  // namespace hutch::rootfs
