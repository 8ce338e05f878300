#include "rootfs/unpack_process.h"

#include <poll.h>
#include <unistd.h>

#include <array>

#include "base/text.h"
#include "oci/image_spec.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr std::array<const char*, 5> kModeNames = {"layer", "verify", "inflate", "index", "tree"};

Error Malformed() {
  return Error{.code = Code::kInternal, .what = "hutch-unpack: malformed report"};
}

// Only what an unpacker may find wrong comes back as its own code.
Error ParseErrorLine(std::string_view rest) {
  const size_t space = rest.find(' ');
  if (space == std::string_view::npos) return Malformed();
  Error error{.code = Code::kKernel, .what = std::string(rest.substr(space + 1))};
  for (const Code code : {Code::kInvalidArgument, Code::kTooLarge, Code::kCorrupt, Code::kNoSpace,
                          Code::kUnavailable})
    if (rest.substr(0, space) == CodeName(code)) error.code = code;
  return error;
}

Result<std::string> HexDecode(std::string_view hex) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() % 2 != 0) return Malformed();
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0 || high + low == 0) return Malformed();  // no name holds a NUL
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

using Words = std::vector<std::string>;

Status TakeDigest(std::string UnpackReport::*field, const Words& words, UnpackReport* report) {
  RETURN_IF_ERROR(oci::ValidateDigest(words[1]));
  report->*field = words[1];
  return OkStatus();
}
Status TakeNumber(uint64_t UnpackReport::*field, const Words& words, UnpackReport* report) {
  ASSIGN_OR_RETURN(report->*field, ParseUint(words[1]));
  return OkStatus();
}
Status TakeOpaque(const Words& words, UnpackReport* report) {
  ASSIGN_OR_RETURN(std::string path, HexDecode(words[1]));
  report->opaque.push_back(std::move(path));
  return OkStatus();
}
Status TakeFile(const Words& words, UnpackReport* report) {
  IndexedFile file;
  ASSIGN_OR_RETURN(file.path, HexDecode(words[1]));
  ASSIGN_OR_RETURN(file.offset, ParseUint(words[2], INT64_MAX));
  ASSIGN_OR_RETURN(file.size, ParseUint(words[3], INT64_MAX));
  report->files.push_back(std::move(file));
  return OkStatus();
}
Status TakeLink(const Words& words, UnpackReport* report) {
  IndexedFile file;
  file.kind = words[0] == "symlink" ? IndexedFile::Kind::kSymlink : IndexedFile::Kind::kHardLink;
  ASSIGN_OR_RETURN(file.path, HexDecode(words[1]));
  ASSIGN_OR_RETURN(file.target, HexDecode(words[2]));
  report->files.push_back(std::move(file));
  return OkStatus();
}

struct LineRow {
  std::string_view key;
  size_t words;
  Status (*take)(const Words& words, UnpackReport* report);
};
using R = UnpackReport;
constexpr LineRow kLines[] = {
    {"digest", 2, [](const Words& w, R* r) { return TakeDigest(&R::digest, w, r); }},
    {"diff_id", 2, [](const Words& w, R* r) { return TakeDigest(&R::diff_id, w, r); }},
    {"entries", 2, [](const Words& w, R* r) { return TakeNumber(&R::entries, w, r); }},
    {"disk_bytes", 2, [](const Words& w, R* r) { return TakeNumber(&R::disk_bytes, w, r); }},
    {"dropped", 2, [](const Words& w, R* r) { return TakeNumber(&R::dropped, w, r); }},
    {"remapped", 2, [](const Words& w, R* r) { return TakeNumber(&R::remapped, w, r); }},
    {"opaque", 2, TakeOpaque},
    {"file", 4, TakeFile},
    {"symlink", 3, TakeLink},
    {"hardlink", 3, TakeLink},
};

Status ParseLine(std::string_view line, UnpackReport* report) {
  if (line.starts_with("error ")) {
    report->error = ParseErrorLine(line.substr(6));
    return OkStatus();
  }
  const Words words = Split(line, ' ');
  for (const LineRow& row : kLines)
    if (words[0] == row.key)
      return words.size() == row.words ? row.take(words, report) : Malformed();
  return Malformed();
}

}  // namespace

Result<UnpackReport> ParseUnpackReport(std::string_view text) {
  UnpackReport report;
  while (true) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return Malformed();  // cut off: there is no "end"
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == "end") break;
    RETURN_IF_ERROR(ParseLine(line, &report));
  }
  return text.empty() ? Result<UnpackReport>(std::move(report)) : Malformed();
}

Result<UnpackProcess> UnpackProcess::Start(const UnpackRequest& request) {
  auto path = FindProgram("hutch-unpack");
  if (!path) return Error{.code = Code::kUnavailable, .what = path.error().what};
  ASSIGN_OR_RETURN(Pipe report, MakePipe());
  ProgramRequest program{.path = *path,
                         .args = {"hutch-unpack", kModeNames[static_cast<size_t>(request.mode)],
                                  std::to_string(request.size_bytes), request.directory},
                         .env = {},
                         .fds = {request.input_fd, -1, -1, report.write.get()}};
  if (request.output_fd >= 0) program.fds.push_back(request.output_fd);
  ASSIGN_OR_RETURN(ChildProgram child, ChildProgram::Start(program));
  return UnpackProcess(std::move(child), std::move(report.read));
}

Result<bool> UnpackProcess::Read() {
  char block[kReadBytes];
  ssize_t n;
  do n = ::read(report_.get(), block, sizeof block);
  while (n < 0 && errno == EINTR);
  if (n < 0) return SysError(errno, "read the unpacker's report");
  text_.append(block, static_cast<size_t>(n));
  if (text_.size() > kMaxReportBytes)
    return Error{.code = Code::kTooLarge, .what = "hutch-unpack: its report is too long"};
  return n == 0;
}

Result<UnpackReport> UnpackProcess::Finish() {
  ASSIGN_OR_RETURN(const int code, program_.Wait());
  if (text_.empty())
    return Error{.code = Code::kKernel,
                 .what = "hutch-unpack ended without a report, with " + std::to_string(code),
                 .hint = "out of memory or CPU time while unpacking"};
  auto report = ParseUnpackReport(text_);
  if (report && (code != 0) != report->error.has_value()) return Malformed();
  return report;
}

Result<UnpackReport> RunUnpack(const UnpackRequest& request) {
  ASSIGN_OR_RETURN(UnpackProcess process, UnpackProcess::Start(request));
  while (true) {
    struct pollfd wait = {process.report_fd(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(kUnpackSeconds) * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error{.code = Code::kTooLarge, .what = "hutch-unpack took too long"};
    ASSIGN_OR_RETURN(const bool end, process.Read());
    if (!end) continue;
    ASSIGN_OR_RETURN(UnpackReport done, process.Finish());
    if (done.error) return *std::move(done.error);
    return done;
  }
}

}  // namespace hutch::rootfs
