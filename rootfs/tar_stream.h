// Writes a tar entry by entry into whatever takes bytes: ustar, with pax records where ustar cannot
// say it. The same entries give the same bytes.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

// Takes bytes in their order; an error ends the writing and is returned by it.
using ByteSink = std::function<Status(std::string_view bytes)>;

struct DataPiece {  // of a file with holes
  uint64_t offset, size;
};

struct TarHeader {
  std::string path;  // without a slash at its end; any bytes but NUL
  char type = '0';   // '0' file, '1' hard link, '2' symlink, '5' directory, '6' FIFO
  std::string link = {};
  uint32_t mode = 0644, uid = 0, gid = 0;
  uint64_t size = 0;  // logical
  timespec mtime = {0, 0};
  std::vector<std::pair<std::string, std::string>> xattrs = {};  // whole names, sorted
  std::vector<DataPiece> pieces = {};  // not empty: a file with holes, only these bytes follow
};

class TarStream {
 public:
  // Borrows nothing: `sink` is kept.
  explicit TarStream(ByteSink sink) : sink_(std::move(sink)) {}
  // Begins an entry; for a file its data follows by Data(), exactly size (or the pieces') bytes,
  // then Pad(). kUnsupported for an attribute whose name holds '=', which pax cannot say.
  Status Begin(const TarHeader& header);
  Status Data(std::string_view bytes);
  Status Pad();  // to the next block
  Status End();  // the two blocks at the end

 private:
  Status Record(const TarHeader& header, const std::string& records);
  ByteSink sink_;
  uint64_t written_ = 0;
};

// What a file of so many bytes takes, its header included, where its name fits ustar.
uint64_t PlainEntryBytes(uint64_t size);

}  // namespace hutch::rootfs
