#include "tools/archive_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/file.h"
#include "tools/meter.h"
#include "tools/whole_file.h"

namespace hutch::tools {
namespace {

bool IsStandard(const ArchiveStream& stream) { return stream.path.empty() || stream.path == "-"; }

}  // namespace

Result<int> DownloadArchive(Context& context, const Request& request, const ArchiveStream& stream) {
  if (!IsStandard(stream))
    return DownloadWhole(
        context, request,
        {.path = stream.path, .mode = 0, .stage = stream.stage, .subject = stream.subject});
  if (::isatty(STDOUT_FILENO) == 1)
    return Error{
        .code = Code::kInvalidArgument,
        .what = "an archive is nothing for a terminal",
        .hint = std::string("give ") + stream.option + ", or send it into a pipe or a file"};
  Meter meter(stream.stage, stream.subject, 0, context.options);
  const Status written = context.client.Download(request, [&](std::string_view bytes) {
    meter.Add(bytes.size());
    return WriteAll(STDOUT_FILENO, bytes);
  });
  if (written) return 0;
  if (written.error().sys == EPIPE) return 128 + SIGPIPE;
  return written.error();
}

Result<oci::Json> UploadArchive(Context& context, const Request& request,
                                const ArchiveStream& stream) {
  const bool from_stdin = IsStandard(stream);
  UniqueFd file;
  if (!from_stdin) {
    ASSIGN_OR_RETURN(file, Open(stream.path, O_RDONLY));
  } else if (::isatty(STDIN_FILENO) == 1) {
    return Error{
        .code = Code::kInvalidArgument,
        .what = "an archive is nothing that one types",
        .hint = std::string("give ") + stream.option + ", or send it from a pipe or a file"};
  }
  const int fd = from_stdin ? STDIN_FILENO : file.get();
  struct stat st = {};
  if (::fstat(fd, &st) != 0) return SysError(errno, "stat " + stream.path);
  const auto size = S_ISREG(st.st_mode) && !from_stdin
                        ? std::optional<uint64_t>(static_cast<uint64_t>(st.st_size))
                        : std::nullopt;
  Meter meter(stream.stage, stream.subject, size.value_or(0), context.options);
  return context.client.Upload(request, FromFd(fd, &meter), size);
}

}  // namespace hutch::tools
