#include "base/result.h"

namespace hutch {
namespace {

struct CodeRow {
  Code code;
  const char* name;
  int http_status;
};

constexpr CodeRow kCodes[] = {
    {Code::kInvalidArgument, "invalid_argument", 400},
    {Code::kNotFound, "not_found", 404},
    {Code::kExists, "exists", 409},
    {Code::kBadState, "bad_state", 409},
    {Code::kLimit, "limit", 429},
    {Code::kTooLarge, "too_large", 413},
    {Code::kUnsupported, "unsupported", 501},
    {Code::kForbidden, "forbidden", 403},
    {Code::kCorrupt, "corrupt", 422},
    {Code::kNoSpace, "no_space", 507},
    {Code::kCommandNotFound, "command_not_found", 422},
    {Code::kCommandNotExecutable, "command_not_executable", 422},
    {Code::kIsDirectory, "is_directory", 409},
    {Code::kNotDirectory, "not_directory", 409},
    {Code::kNotAFile, "not_a_file", 409},
    {Code::kPreconditionFailed, "precondition_failed", 412},
    {Code::kAmbiguous, "ambiguous", 409},
    {Code::kUnavailable, "unavailable", 503},
    {Code::kKernel, "kernel", 500},
    {Code::kInternal, "internal", 500},
};

const CodeRow& Row(Code code) {
  for (const CodeRow& row : kCodes)
    if (row.code == code) return row;
  CHECK(false);
}

}  // namespace

const char* CodeName(Code code) { return Row(code).name; }
int CodeHttpStatus(Code code) { return Row(code).http_status; }

std::optional<Code> CodeOfName(std::string_view name) {
  for (const CodeRow& row : kCodes)
    if (row.name == name) return row.code;
  return std::nullopt;
}

std::string ErrnoName(int sys) {
  const char* name = strerrorname_np(sys);
  return name != nullptr ? name : "errno " + std::to_string(sys);
}

Error SysError(int sys, std::string what) {
  const Code code = sys == ENOSPC || sys == EDQUOT ? Code::kNoSpace : Code::kKernel;
  what += ": ";
  what += strerrordesc_np(sys) != nullptr ? strerrordesc_np(sys) : ErrnoName(sys);
  return Error{.code = code, .sys = sys, .what = std::move(what)};
}

std::string Error::ToString() const {
  std::string text;
  if (*step != '\0') text.append(step).append(": ");
  text += what;
  if (!hint.empty()) text.append(" (").append(hint).append(")");
  return text;
}

}  // namespace hutch
