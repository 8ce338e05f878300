// hutch-unpack MODE DIRECTORY: reads a tar (plain, gzip or zstd) from descriptor 0, writes it below
// DIRECTORY while confined to it, and reports on descriptor 3. Started by hutchd for each layer;
// not for people. One pass: the bytes as they come are hashed, decompressed, hashed again (the
// diffID) and unpacked.
//
// Report, one line each: "digest sha256:.. diff_id sha256:.. packed N bytes N entries N dropped N",
// then "opaque <path as hex>" for each directory to be marked; or "error <code> <text>".
#include <archive.h>
#include <archive_entry.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/limits.h"
#include "rootfs/unpack/confine.h"
#include "rootfs/unpack/unpacker.h"

namespace hutch::rootfs {
namespace {

constexpr int kInputFd = 0;
constexpr int kReportFd = 3;
constexpr size_t kBlockBytes = 256 * 1024;

// SHA-256 as it goes. Made before confinement: OpenSSL loads its provider then.
class Hash {
 public:
  Hash() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Add(const void* bytes, size_t size) {
    CHECK(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
  }
  std::string Digest() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), out, &size) == 1);
    return "sha256:" + HexEncode({reinterpret_cast<const char*>(out), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

using Archive = std::unique_ptr<archive, int (*)(archive*)>;

// The two stages of one pass: descriptor 0 -> hash -> decompress -> hash -> tar.
struct Stream {
  Hash packed_hash, plain_hash;
  uint64_t packed_bytes = 0, plain_bytes = 0;
  std::array<char, kBlockBytes> input, plain;
  Archive decompressor{archive_read_new(), archive_read_free};
  Archive tar{archive_read_new(), archive_read_free};
  bool too_dense = false;
};

la_ssize_t ReadPacked(archive*, void* data, const void** buffer) {
  auto* s = static_cast<Stream*>(data);
  ssize_t n;
  do n = ::read(kInputFd, s->input.data(), s->input.size());
  while (n < 0 && errno == EINTR);
  if (n <= 0) return n;
  s->packed_hash.Add(s->input.data(), static_cast<size_t>(n));
  s->packed_bytes += static_cast<uint64_t>(n);
  *buffer = s->input.data();
  return n;
}

la_ssize_t ReadPlain(archive* tar, void* data, const void** buffer) {
  auto* s = static_cast<Stream*>(data);
  const la_ssize_t n = archive_read_data(s->decompressor.get(), s->plain.data(), s->plain.size());
  if (n < 0) {
    archive_set_error(tar, EIO, "decompress: %s", archive_error_string(s->decompressor.get()));
    return -1;
  }
  s->plain_hash.Add(s->plain.data(), static_cast<size_t>(n));
  s->plain_bytes += static_cast<uint64_t>(n);
  s->too_dense =
      s->plain_bytes > kMaxLayerBytes ||
      (s->plain_bytes > kRatioFreeBytes && s->plain_bytes / kMaxLayerRatio > s->packed_bytes);
  if (s->too_dense) {
    archive_set_error(tar, EFBIG, "decompresses to too much");
    return -1;
  }
  *buffer = s->plain.data();
  return n;
}

Error TarError(archive* a) {
  return Error{.code = Code::kCorrupt, .what = std::string("archive: ") + archive_error_string(a)};
}

Status OpenStream(Stream& s) {
  archive_read_support_filter_gzip(s.decompressor.get());
  archive_read_support_filter_zstd(s.decompressor.get());
  archive_read_support_format_raw(s.decompressor.get());
  archive_read_support_format_tar(s.tar.get());
  if (archive_read_open(s.decompressor.get(), &s, nullptr, ReadPacked, nullptr) != ARCHIVE_OK)
    return TarError(s.decompressor.get());
  archive_entry* entry = nullptr;
  if (archive_read_next_header(s.decompressor.get(), &entry) != ARCHIVE_OK)
    return Error{.code = Code::kCorrupt, .what = "an empty archive"};
  if (archive_read_open(s.tar.get(), &s, nullptr, ReadPlain, nullptr) != ARCHIVE_OK)
    return TarError(s.tar.get());
  return OkStatus();
}

// The padding behind the last entry belongs to both digests.
Status Drain(Stream& s) {
  const void* buffer = nullptr;
  la_ssize_t n;
  while ((n = ReadPlain(s.tar.get(), &s, &buffer)) > 0) continue;
  if (n < 0) return TarError(s.tar.get());
  while ((n = ReadPacked(nullptr, &s, &buffer)) > 0) continue;
  return n == 0 ? OkStatus() : SysError(errno, "read the archive");
}

Status Report(const std::string& text) { return WriteAll(kReportFd, text); }

Status Unpack(Stream& s, int root_fd, Mode mode) {
  UnpackCounts counts;
  RETURN_IF_ERROR(OpenStream(s));
  Status done = Unpacker(root_fd, mode).Run(s.tar.get(), &counts);
  if (s.too_dense)
    return Error{.code = Code::kTooLarge, .what = "the archive decompresses to too much"};
  RETURN_IF_ERROR(std::move(done));
  RETURN_IF_ERROR(Drain(s));
  std::string text = "digest " + s.packed_hash.Digest() + " diff_id " + s.plain_hash.Digest() +
                     " packed " + std::to_string(s.packed_bytes) + " bytes " +
                     std::to_string(counts.bytes) + " entries " + std::to_string(counts.entries) +
                     " dropped " + std::to_string(counts.dropped) + "\n";
  for (const std::string& path : counts.opaque) text += "opaque " + HexEncode(path) + "\n";
  return Report(text);
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("hutch-unpack unpacks image layers for hutchd; it is not started by hand.\n",
               stderr);
    return 2;
  }
  const Mode mode = std::strcmp(argv[1], "archive") == 0 ? Mode::kArchive : Mode::kLayer;
  const auto stream = std::make_unique<Stream>();
  auto root = ConfineTo(argv[2], kMaxUnpackSeconds);
  Status status = root ? Unpack(*stream, root->get(), mode) : Status(std::move(root).error());
  if (status) return 0;
  std::string text = status.error().ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  IgnoreError(Report("error " + std::string(CodeName(status.error().code)) + " " + text + "\n"),
              "the exit code says it, too");
  return 1;
}

}  // namespace
}  // namespace hutch::rootfs

int main(int argc, char** argv) { return hutch::rootfs::Main(argc, argv); }
