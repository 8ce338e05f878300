#include "rootfs/unpack/stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>

#include "base/archive_code.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kInputBytes = 1u << 20;

}  // namespace

Error ArchiveError(archive* from) {
  const char* text = archive_error_string(from);
  return Error{.code = Code::kCorrupt,
               .what = std::string("archive: ") + (text == nullptr ? "unreadable" : text)};
}

Stream::Stream(int fd, uint64_t size_bytes)
    : fd_(fd),
      left_bytes_(size_bytes),
      input_(kInputBytes),
      decompressor_(archive_read_new(), archive_read_free) {
  CHECK(decompressor_ != nullptr);
  CHECK(archive_read_support_filter_gzip(decompressor_.get()) == ARCHIVE_OK);
  CHECK(archive_read_support_filter_zstd(decompressor_.get()) == ARCHIVE_OK);
  CHECK(archive_read_support_format_raw(decompressor_.get()) == ARCHIVE_OK);
}

long Stream::ReadPacked(archive* reader, void* stream, const void** buffer) {
  auto* self = static_cast<Stream*>(stream);
  const size_t want = std::min<uint64_t>(self->input_.size(), self->left_bytes_);
  ssize_t n;
  do n = ::read(self->fd_, self->input_.data(), want);
  while (n < 0 && errno == EINTR);
  if (n < 0 && reader != nullptr) archive_set_error(reader, errno, "read");
  if (n <= 0) return n;
  self->packed_hash_.Add(self->input_.data(), static_cast<size_t>(n));
  self->packed_bytes_ += static_cast<uint64_t>(n);
  self->left_bytes_ -= static_cast<uint64_t>(n);
  *buffer = self->input_.data();
  return n;
}

Status Stream::Open() {
  archive* reader = decompressor_.get();
  if (archive_read_open(reader, this, nullptr, ReadPacked, nullptr) != ARCHIVE_OK)
    return ArchiveError(reader);
  archive_entry* entry = nullptr;
  if (archive_read_next_header(reader, &entry) != ARCHIVE_OK) return ArchiveError(reader);
  compressed_ = archive_filter_code(reader, 0) != ARCHIVE_FILTER_NONE;
  return OkStatus();
}

Result<Stream::Bytes> Stream::Next() {
  Bytes bytes;
  la_int64_t offset = 0;
  const int rc = archive_read_data_block(decompressor_.get(), &bytes.data, &bytes.size, &offset);
  if (rc == ARCHIVE_EOF) return Bytes{};
  if (ArchiveFailed(rc)) return ArchiveError(decompressor_.get());
  // Uncompressed, both digests are of the same bytes.
  if (compressed_) plain_hash_.Add(bytes.data, bytes.size);
  plain_bytes_ += bytes.size;
  if (plain_bytes_ > kMaxLayerBytes ||
      (plain_bytes_ > kRatioFreeBytes && plain_bytes_ / kMaxLayerRatio > packed_bytes_))
    return Error{.code = Code::kTooLarge,
                 .what = "decompresses to more than its " + std::to_string(packed_bytes_) +
                         " bytes may: " + std::to_string(plain_bytes_)};
  return bytes;
}

long Stream::ReadPlain(archive* reader, void* stream, const void** buffer) {
  auto* self = static_cast<Stream*>(stream);
  auto bytes = self->Next();
  if (!bytes) {
    archive_set_error(reader, EIO, "%s", bytes.error().what.c_str());
    self->failure_ = std::move(bytes).error();
    return -1;
  }
  *buffer = bytes->data;
  return static_cast<long>(bytes->size);
}

Result<ArchivePtr> Stream::OpenTar() {
  ArchivePtr tar(archive_read_new(), archive_read_free);
  CHECK(tar != nullptr && archive_read_support_format_tar(tar.get()) == ARCHIVE_OK);
  if (archive_read_open(tar.get(), this, nullptr, ReadPlain, nullptr) != ARCHIVE_OK)
    return ArchiveError(tar.get());
  return tar;
}

Status Stream::Drain() {
  while (true) {
    ASSIGN_OR_RETURN(const Bytes bytes, Next());
    if (bytes.size == 0) break;
  }
  return ReadRest();
}

Status Stream::ReadRest() {
  const void* buffer = nullptr;
  long n;
  while ((n = ReadPacked(nullptr, this, &buffer)) > 0) continue;
  return n == 0 ? OkStatus() : SysError(errno, "read the archive");
}

Result<std::string> Stream::DrainPacked() {
  RETURN_IF_ERROR(ReadRest());
  return packed_hash_.Digest();
}

Stream::Digests Stream::Finish() {
  Digests digests;
  digests.packed = packed_hash_.Digest();
  digests.plain = compressed_ ? plain_hash_.Digest() : digests.packed;
  return digests;
}

}  // namespace hutch::rootfs
