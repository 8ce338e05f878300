// cp: files one by one, directories as a tar that is made and unpacked as it flows.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/host_tree.h"
#include "tools/interrupts.h"
#include "tools/meter.h"
#include "tools/places.h"
#include "tools/whole_file.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr const char* kAnything = "*/*";

std::string ArchiveTarget(const Place& place, const char* more) {
  return "/v1/sandboxes/" + EncodeSegment(place.sandbox) +
         "/archive?path=" + EncodeSegment(place.path) + "&format=tar" + more;
}

// kNotFound only when the sandbox is not there: a path that is no directory is no error.
Result<bool> IsRemoteDirectory(Client& client, const Place& place) {
  const std::string sandbox = "/v1/sandboxes/" + EncodeSegment(place.sandbox);
  const auto listed = client.Get(sandbox + "/files?path=" + EncodeSegment(place.path) + "&limit=1");
  if (listed) return true;
  if (listed.error().code == Code::kUnavailable) return listed.error();
  RETURN_IF_ERROR(client.Get(sandbox));
  return false;
}

bool IsLocalDirectory(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

Result<int> Done(Context& context, const Json& reply) {
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(reply));
  return 0;
}

void NoteLeftOut(uint64_t count) {
  if (count > 0) Note(std::to_string(count) + " sockets, FIFOs or devices were left out");
}

// --- into a sandbox

Result<int> UploadTree(Context& context, const std::string& directory, Place to) {
  ASSIGN_OR_RETURN(const bool exists, IsRemoteDirectory(context.client, to));
  if (exists) to.path = JoinPath(to.path, BaseName(directory));
  ASSIGN_OR_RETURN(TreePacker packer, TreePacker::Open(directory));
  Meter meter("copy", directory, 0, context.options);
  const auto reply = context.client.Upload(
      {.method = "PUT", .target = ArchiveTarget(to, "&parents=true")},
      [&](char* bytes, size_t size) -> Result<size_t> {
        auto got = packer.Read(bytes, size);
        if (got) meter.Add(*got);
        return got;
      },
      std::nullopt);
  if (!reply) return reply.error();
  NoteLeftOut(packer.left_out());
  return Done(context, *reply);
}

Result<int> UploadFile(Context& context, const std::string& path, Place to) {
  ASSIGN_OR_RETURN(const UniqueFd file, Open(path, O_RDONLY));
  struct stat st = {};
  if (::fstat(file.get(), &st) != 0) return SysError(errno, "stat " + path);
  const bool slash = to.path.ends_with('/');
  ASSIGN_OR_RETURN(const bool into, IsRemoteDirectory(context.client, to));
  if (slash && !into)
    return Error{.code = Code::kNotFound,
                 .what = to.path + " is no directory of " + to.sandbox,
                 .hint = "`hutch files mkdir -p " + to.sandbox + ":" + to.path + "` makes it"};
  if (into) to.path = JoinPath(to.path, BaseName(path));
  const bool regular = S_ISREG(st.st_mode);
  char mode[16] = "";
  if (regular) std::snprintf(mode, sizeof mode, "?mode=%04o", st.st_mode & 0777u);
  const auto size =
      regular ? std::optional<uint64_t>(static_cast<uint64_t>(st.st_size)) : std::nullopt;
  Meter meter("copy", path, size.value_or(0), context.options);
  const auto reply = context.client.Upload({.method = "PUT", .target = FileTarget(to) + mode},
                                           FromFd(file.get(), &meter), size);
  if (!reply) return reply.error();
  return Done(context, *reply);
}

Result<int> UploadTar(Context& context, const Place& to) {
  Meter meter("copy", "stdin", 0, context.options);
  const auto reply = context.client.Upload({.method = "PUT", .target = ArchiveTarget(to, "")},
                                           FromFd(STDIN_FILENO, &meter), std::nullopt);
  if (!reply) return reply.error();
  return Done(context, *reply);
}

// --- out of a sandbox

Result<int> DownloadTar(Context& context, const Place& from) {
  const Status written = context.client.Download(
      {.target = ArchiveTarget(from, ""), .accept = kAnything},
      [](std::string_view bytes) { return WriteAll(STDOUT_FILENO, bytes); });
  if (written) return 0;
  if (written.error().sys == EPIPE) return 128 + SIGPIPE;
  return written.error();
}

Result<int> DownloadTree(Context& context, const Place& from, std::string directory) {
  if (IsLocalDirectory(directory)) directory = JoinPath(directory, BaseName(from.path));
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
    return SysError(errno, "mkdir " + directory);
  ASSIGN_OR_RETURN(UniqueFd target, Open(directory, O_PATH | O_DIRECTORY));
  TreeUnpacker unpacker(std::move(target));
  Meter meter("copy", from.path, 0, context.options);
  RETURN_IF_ERROR(context.client.Download({.target = ArchiveTarget(from, ""), .accept = kAnything},
                                          [&](std::string_view bytes) {
                                            meter.Add(bytes.size());
                                            return unpacker.Feed(bytes);
                                          }));
  RETURN_IF_ERROR(unpacker.Finish());
  NoteLeftOut(unpacker.left_out());
  return 0;
}

// The mode that the directory tells of the file; 0 when it is no plain file there.
mode_t RemoteMode(Client& client, const Place& place) {
  const auto listed =
      client.Get("/v1/sandboxes/" + EncodeSegment(place.sandbox) +
                 "/files?path=" + EncodeSegment(ParentOf(place.path)) +
                 "&depth=1&limit=1&glob=" + EncodeSegment(GlobOfName(BaseName(place.path))));
  if (!listed || !listed->is_object()) return 0;
  const auto entries = listed->find("entries");
  if (entries == listed->end() || !entries->is_array() || entries->empty()) return 0;
  std::string type, mode;
  const Status read = oci::ObjectReader((*entries)[0], "")
                          .String("type", &type)
                          .String("mode", &mode)
                          .Done(oci::ObjectReader::Unknown::kIgnore);
  if (!read || type != "file") return 0;
  unsigned value = 0;
  for (const char c : mode) value = value * 8 + static_cast<unsigned>(c - '0') % 8;
  return value & 0777;
}

Result<int> DownloadFile(Context& context, const Place& from, std::string path) {
  if (IsLocalDirectory(path)) path = JoinPath(path, BaseName(from.path));
  const mode_t mode = RemoteMode(context.client, from);
  return DownloadWhole(
      context, {.target = FileTarget(from), .accept = kAnything},
      {.path = std::move(path), .mode = mode, .stage = "copy", .subject = from.path});
}

Result<int> CopyOut(Context& context, const Place& from, const Place& to) {
  if (to.is_tar_stream()) return DownloadTar(context, from);
  ASSIGN_OR_RETURN(const bool directory, IsRemoteDirectory(context.client, from));
  return directory ? DownloadTree(context, from, to.path) : DownloadFile(context, from, to.path);
}

}  // namespace

Result<int> RunCopy(Context& context) {
  ASSIGN_OR_RETURN(const Place from, ParsePlace(context.options.source));
  ASSIGN_OR_RETURN(const Place to, ParsePlace(context.options.destination));
  if (from.remote() == to.remote())
    return Error{.code = Code::kInvalidArgument,
                 .what = "one of the two must be ID:/path, the other a path of this host",
                 .hint = "from sandbox to sandbox: hutch cp ONE:/path - | hutch cp - OTHER:/path"};
  if (from.remote()) return CopyOut(context, from, to);
  if (from.is_tar_stream()) return UploadTar(context, to);
  return IsLocalDirectory(from.path) ? UploadTree(context, from.path, to)
                                     : UploadFile(context, from.path, to);
}

}  // namespace hutch::tools
