// hutch-unpack MODE SIZE DIRECTORY: reads SIZE bytes of an archive (plain, gzip or zstd) from
// descriptor 0 and reports on descriptor 3, confined to DIRECTORY. Started by hutchd; not for
// people.
//
//   layer    one image layer: written below DIRECTORY
//   tree     an archive of anything: written below DIRECTORY, over what is there; the report counts
//   verify   one image layer: digests only
//   inflate  the plain bytes of a whole archive: to descriptor 4
//   index    the files of a whole plain archive: where each begins
//
// The report has one "key value..." a line, see rootfs/unpack_job.cc; or "error <code> <text>".
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <string_view>

#include "base/archive_code.h"
#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/limits.h"
#include "rootfs/unpack/confine.h"
#include "rootfs/unpack/stream.h"
#include "rootfs/unpack/unpacker.h"

namespace hutch::rootfs {
namespace {

constexpr int kInputFd = 0;
constexpr int kReportFd = 3;
constexpr int kOutputFd = 4;
constexpr size_t kIndexBlockBytes = 65536;

Result<std::string> Finish(Stream& stream) {
  RETURN_IF_ERROR(stream.Drain());
  const Stream::Digests digests = stream.Finish();
  return "digest " + digests.packed + "\ndiff_id " + digests.plain + "\n";
}

Result<std::string> UnpackInto(Stream& stream, int root_fd, UnpackKind kind) {
  RETURN_IF_ERROR(stream.Open());
  UnpackCounts counts;
  {
    ASSIGN_OR_RETURN(const ArchivePtr tar, stream.OpenTar());
    Status done = Unpacker(root_fd, {}, kind).Run(tar.get(), &counts);
    RETURN_IF_ERROR(stream.failure());  // says more than what the tar reader makes of it
    RETURN_IF_ERROR(std::move(done));
  }
  ASSIGN_OR_RETURN(std::string report, Finish(stream));
  const std::pair<const char*, uint64_t> numbers[] = {{"entries", counts.entries},
                                                      {"disk_bytes", counts.disk_bytes},
                                                      {"dropped", counts.dropped},
                                                      {"remapped", counts.remapped}};
  for (const auto& [key, value] : numbers)
    report += std::string(key) + " " + std::to_string(value) + "\n";
  std::sort(counts.opaque.begin(), counts.opaque.end());
  counts.opaque.erase(std::unique(counts.opaque.begin(), counts.opaque.end()), counts.opaque.end());
  for (const std::string& path : counts.opaque) report += "opaque " + HexEncode(path) + "\n";
  return report;
}

Result<std::string> UnpackLayer(Stream& stream, int root_fd) {
  return UnpackInto(stream, root_fd, UnpackKind::kLayer);
}

Result<std::string> UnpackTree(Stream& stream, int root_fd) {
  return UnpackInto(stream, root_fd, UnpackKind::kTree);
}

Result<std::string> VerifyLayer(Stream& stream, int /*root_fd*/) {
  RETURN_IF_ERROR(stream.Open());
  return Finish(stream);
}

Result<std::string> Inflate(Stream& stream, int /*root_fd*/) {
  RETURN_IF_ERROR(stream.Open());
  while (true) {
    ASSIGN_OR_RETURN(const Stream::Bytes bytes, stream.Next());
    if (bytes.size == 0) break;
    RETURN_IF_ERROR(WriteAll(kOutputFd, {static_cast<const char*>(bytes.data), bytes.size}));
  }
  return Finish(stream);
}

// One line for a regular file or a link that may stand for one; everything else is ignored.
Result<std::string> IndexLine(archive* tar, archive_entry* entry) {
  ASSIGN_OR_RETURN(const std::string path, NormalEntryPath(archive_entry_pathname(entry)));
  const char* target = archive_entry_hardlink(entry);
  if (target == nullptr && archive_entry_filetype(entry) == AE_IFLNK)
    target = archive_entry_symlink(entry);
  if (target != nullptr)
    return std::string(archive_entry_hardlink(entry) != nullptr ? "hardlink " : "symlink ") +
           HexEncode(path) + " " + HexEncode(target) + "\n";
  if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_sparse_count(entry) != 0)
    return std::string();
  return "file " + HexEncode(path) + " " + std::to_string(archive_filter_bytes(tar, 0)) + " " +
         std::to_string(archive_entry_size(entry)) + "\n";
}

Result<std::string> Index(Stream& /*stream*/, int /*root_fd*/) {
  const ArchivePtr tar(archive_read_new(), archive_read_free);
  if (archive_read_support_format_tar(tar.get()) != ARCHIVE_OK ||
      archive_read_open_fd(tar.get(), kInputFd, kIndexBlockBytes) != ARCHIVE_OK)
    return ArchiveError(tar.get());
  std::string report;
  for (size_t count = 0;; ++count) {
    archive_entry* entry = nullptr;
    const int rc = archive_read_next_header(tar.get(), &entry);
    if (rc == ARCHIVE_EOF) return report;
    if (ArchiveFailed(rc)) return ArchiveError(tar.get());
    if (count >= kMaxArchiveFiles)
      return Error{.code = Code::kTooLarge, .what = "too many files in the archive"};
    ASSIGN_OR_RETURN(const std::string line, IndexLine(tar.get(), entry));
    report += line;
  }
}

struct ModeRow {
  std::string_view name;
  Result<std::string> (*run)(Stream& stream, int root_fd);
};
constexpr ModeRow kModes[] = {{"layer", UnpackLayer},
                              {"verify", VerifyLayer},
                              {"inflate", Inflate},
                              {"index", Index},
                              {"tree", UnpackTree}};

// The report and, with "inflate", the output are all that may be open beside the input.
Status CloseOthers() {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid() || ::dup2(null.get(), 1) < 0 || ::dup2(null.get(), 2) < 0)
    return SysError(errno, "open /dev/null");
  const int rc = sys::CloseRange(kOutputFd + 1, ~0u, 0);
  return rc < 0 ? SysError(-rc, "close_range") : OkStatus();
}

std::string ErrorLine(const Error& error) {
  std::string text = error.ToString();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return std::string("error ") + CodeName(error.code) + " " + text + "\n";
}

Result<std::string> Run(const ModeRow& mode, uint64_t size_bytes, const std::string& directory) {
  RETURN_IF_ERROR(CloseOthers());
  // Names are UTF-8 in pax headers: in this locale nothing is converted, so nothing is loaded
  // later.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr)
    return Error{.code = Code::kUnavailable, .what = "no locale C.UTF-8"};
  ::umask(0);
  Stream stream(kInputFd, size_bytes);
  ASSIGN_OR_RETURN(const UniqueFd root, ConfineTo(directory));
  auto report = mode.run(stream, root.get());
  if (report) return report;
  // What was wrong may be the bytes: their digest tells.
  const auto digest = stream.DrainPacked();
  return (digest ? "digest " + *digest + "\n" : "") + ErrorLine(report.error());
}

int Main(int argc, char** argv) {
  const auto mode = argc != 4 ? std::end(kModes)
                              : std::find_if(std::begin(kModes), std::end(kModes),
                                             [&](auto& row) { return row.name == argv[1]; });
  const auto size = argc != 4 ? Result<uint64_t>(Error{}) : ParseUint(argv[2]);
  if (mode == std::end(kModes) || !size) {
    std::fputs("hutch-unpack unpacks image layers for hutchd; it is not started by hand.\n",
               stderr);
    return 2;
  }
  const auto report = Run(*mode, *size, argv[3]);
  const std::string text = (report ? *report : ErrorLine(report.error())) + "end\n";
  const bool failed = text.starts_with("error ") || text.find("\nerror ") != std::string::npos;
  return WriteAll(kReportFd, text) && !failed ? 0 : 1;
}

}  // namespace
}  // namespace hutch::rootfs

int main(int argc, char** argv) { return hutch::rootfs::Main(argc, argv); }
