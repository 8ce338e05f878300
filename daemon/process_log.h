// What a process wrote, on the host's disk: bounded, rotating, in the order of arrival. Bytes go
// from the pipe into the file by splice(2), within one system call, so that a daemon that is killed
// at any instruction loses none and stores none twice.
//
// A log is a directory of segments of at most half the limit, named after the offset of their first
// byte: <offset>.data holds the bytes of both streams, <offset>.index a record {offset, time,
// stream} BEFORE each run of bytes of one stream. The last two segments are kept. Offsets count
// every byte ever logged; a cursor is an offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::daemon {

enum class StreamId : uint32_t { kStdout = 1, kStderr = 2 };
const char* StreamName(StreamId stream);  // "stdout"

struct LogRun {  // bytes of one stream that arrived together
  StreamId stream;
  uint64_t offset;
  int64_t time_us;  // since the epoch, when the first of them arrived
  std::string bytes;
};

class ProcessLog {
 public:
  // Makes the directory, or takes up what is in it. One writer. kKernel, kNoSpace.
  static Result<std::unique_ptr<ProcessLog>> Open(const std::string& directory,
                                                  uint64_t limit_bytes);

  // Moves at most max_bytes from a pipe. Returns how many; 0 when it is empty (or, with *at_end
  // set, at its end). What cannot be stored (a full disk) is taken out of the pipe all the same, so
  // that the process is not held, and counted in lost().
  size_t Pump(int pipe_fd, StreamId stream, size_t max_bytes, bool* at_end);

  uint64_t begin() const;                // of what is still kept
  uint64_t end() const { return end_; }  // of all that was ever logged
  uint64_t lost() const { return lost_; }
  uint64_t written(StreamId stream) const;  // bytes of one stream, ever

  // From `cursor` on (moved up to begin() when that has gone), at most max_bytes. Runs are split
  // where they must be and never joined over a gap.
  Result<std::vector<LogRun>> Read(uint64_t cursor, size_t max_bytes) const;
  // The start of the first run that arrived at or after the time; end() when none did.
  uint64_t FindTime(int64_t time_us) const;
  // After the last byte: closes what is open for writing. Reading goes on.
  void Seal();

 private:
  // As on disk, native byte order: our own files of this host.
  struct Mark {
    uint64_t offset;
    int64_t time_us;
    uint64_t stream;
  };
  struct Header {  // first in an index
    uint64_t base;
    uint64_t stdout_before, stderr_before, lost_before;  // of all earlier segments
  };
  struct Index;  // one index file, opened for reading

  ProcessLog(std::string directory, uint64_t limit_bytes);
  Status TakeUp(const std::vector<std::string>& names);
  Status StartSegment();
  Status MarkRun(StreamId stream);
  size_t Discard(int pipe_fd, size_t max_bytes, bool* at_end);
  Status ReadSegment(uint64_t base, uint64_t from, uint64_t to, std::vector<LogRun>* runs) const;
  Result<Index> OpenIndex(uint64_t base) const;
  std::string Path(uint64_t base, const char* suffix) const;
  uint64_t SegmentEnd(size_t at) const;

  std::string directory_;
  uint64_t segment_bytes_;
  std::vector<uint64_t> bases_;  // of the segments that are kept, at most two; rising
  UniqueFd data_, index_;        // of the last one, for writing
  uint64_t mark_count_ = 0;
  Mark last_ = {};
  uint64_t end_ = 0, lost_ = 0;
  uint64_t written_[2] = {};  // by stream
};

}  // namespace hutch::daemon
