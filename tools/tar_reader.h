// A tar archive from bytes that come in pieces of any size: ustar, pax and GNU's long names, sparse
// files of pax 1.0. Knows no file system.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

struct TarEntry {
  enum class Kind { kFile, kDirectory, kSymlink, kHardLink, kOther };
  Kind kind = Kind::kFile;
  std::string name;
  std::string target;  // of links
  uint64_t size = 0;   // of a sparse file: with its holes
  uint32_t mode = 0;   // the permission bits, set-id bits included
};

struct TarSink {
  std::function<Status(const TarEntry&)> begin;
  // Pieces of the entry in order; a hole is a jump of the offset.
  std::function<Status(uint64_t offset, std::string_view bytes)> data;
  std::function<Status()> end;
};

class TarReader {
 public:
  explicit TarReader(TarSink sink) : sink_(std::move(sink)) {}

  // kCorrupt for what is no tar, kTooLarge for a header of more than 1 MiB; the sink's errors.
  Status Feed(std::string_view bytes);
  // Whether the archive's end mark was seen: one that was cut off has none.
  bool finished() const { return state_ == State::kFinished; }

 private:
  enum class State { kHeader, kMeta, kSparseMap, kData, kPadding, kFinished };
  struct Run {
    uint64_t offset = 0, size = 0;
  };

  bool Ready() const;
  Status Step();
  Status TakeHeader();
  Status TakeMeta();
  Status TakeSparseMap();
  Status TakeData();
  Status BeginEntry(char type, uint64_t stored);
  Status EndEntry();
  void ApplyPax();
  std::string Take(size_t size);

  TarSink sink_;
  State state_ = State::kHeader;
  std::string buffer_;
  TarEntry entry_;
  std::map<std::string, std::string> pax_;  // of the next entry
  std::string long_name_, long_target_;     // GNU's, of the next entry
  char meta_type_ = 0;
  uint64_t stored_ = 0;    // bytes of the member that are still to come
  uint64_t padding_ = 0;   // behind it
  uint64_t place_ = 0;     // in the entry
  std::vector<Run> runs_;  // of a sparse file
  size_t run_ = 0;
  size_t map_bytes_ = 0;  // what a sparse map takes at least
};

}  // namespace hutch::tools
