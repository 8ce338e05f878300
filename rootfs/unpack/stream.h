// The bytes of one layer, hashed as they come, decompressed, and hashed again: one pass over
// descriptor -> digest -> gzip or zstd -> diffID -> whoever reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/digest.h"

struct archive;

namespace hutch::rootfs {

using ArchivePtr = std::unique_ptr<archive, int (*)(archive*)>;

class Stream {
 public:
  // Borrows fd; reads at most size_bytes of it, from where it stands. Loads what decompressing and
  // hashing need, so that nothing is left to load once the process is confined.
  Stream(int fd, uint64_t size_bytes);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Finds out how the bytes are compressed. kCorrupt for none at all or bytes that do not unpack.
  Status Open();
  // The next plain bytes; none at the end. They last until the next call. kCorrupt, kTooLarge.
  struct Bytes {
    const void* data = nullptr;
    size_t size = 0;
  };
  Result<Bytes> Next();
  // Reads what is left: padding belongs to the digests, too.
  Status Drain();
  // The digest of the packed bytes after something else failed: the rest is read, not unpacked.
  Result<std::string> DrainPacked();
  // A tar reader over this stream, opened. The stream must outlive it.
  Result<ArchivePtr> OpenTar();
  // The error of the last Next() that failed, for those who read through a tar reader.
  const Status& failure() const { return failure_; }

  bool compressed() const { return compressed_; }
  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t plain_bytes() const { return plain_bytes_; }
  struct Digests {
    std::string packed, plain;
  };
  Digests Finish();  // after Drain()

 private:
  Status ReadRest();
  static long ReadPacked(archive*, void* stream, const void** buffer);
  static long ReadPlain(archive*, void* stream, const void** buffer);

  int fd_;
  uint64_t left_bytes_;
  Sha256 packed_hash_, plain_hash_;
  uint64_t packed_bytes_ = 0, plain_bytes_ = 0;
  bool compressed_ = true;
  Status failure_ = OkStatus();
  std::vector<char> input_;
  ArchivePtr decompressor_;
};

// "archive: <what libarchive says>", kCorrupt.
Error ArchiveError(archive* from);

}  // namespace hutch::rootfs
