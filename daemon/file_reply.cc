#include "daemon/file_reply.h"

#include <algorithm>
#include <cstring>

#include "base/base64.h"
#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

enum class Type { kString, kUint, kBool, kStrings, kCounts, kError };

struct MemberRow {
  std::string_view name;
  Type type;
};
constexpr MemberRow kMembers[] = {
    {"path", Type::kString},
    {"path_base64", Type::kString},
    {"target", Type::kString},
    {"target_base64", Type::kString},
    {"type", Type::kString},
    {"size", Type::kUint},
    {"mode", Type::kString},
    {"uid", Type::kUint},
    {"gid", Type::kUint},
    {"mtime", Type::kString},
    {"etag", Type::kString},
    {"created", Type::kBool},
    {"outcome", Type::kString},
    {"offset", Type::kUint},
    {"length", Type::kUint},
    {"count", Type::kUint},
    {"truncated", Type::kBool},
    {"next", Type::kString},
    {"removed", Type::kUint},
    {"replacements", Type::kUint},
    {"copied", Type::kCounts},
    {"matches", Type::kUint},
    {"matching_files", Type::kUint},
    {"binary_files_skipped", Type::kUint},
    {"unreadable", Type::kUint},
    {"unreadable_directories", Type::kUint},
    {"line", Type::kUint},
    {"column", Type::kUint},
    {"text", Type::kString},
    {"text_truncated", Type::kBool},
    {"before", Type::kStrings},
    {"after", Type::kStrings},
    {"content", Type::kString},
    {"content_base64", Type::kString},
    {"files", Type::kUint},
    {"failed", Type::kUint},
    {"directories", Type::kUint},
    {"symlinks", Type::kUint},
    {"hard_links", Type::kUint},
    {"bytes", Type::kUint},
    {"skipped", Type::kUint},
    {"entries", Type::kUint},
    {"format", Type::kString},
    {"watches", Type::kUint},
    {"kind", Type::kString},
    {"is_directory", Type::kBool},
    {"cookie", Type::kUint},
    {"gone", Type::kBool},
    {"code", Type::kString},
    {"message", Type::kString},
    {"errno", Type::kString},
    {"step", Type::kString},
    {"field", Type::kString},
    {"error", Type::kError},
};

constexpr std::string_view kKinds[] = {"ok", "entry", "match", "result", "event", "done", "error"};

Error Malformed() {
  return Error{.code = Code::kUnavailable,
               .what =
                   "the process that serves files inside was tampered with: its answer is "
                   "malformed"};
}

bool IsStrings(const oci::Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [](const oci::Json& item) { return item.is_string(); });
}

bool IsCounts(const oci::Json& value) {
  return value.is_boolean() ||
         (value.is_object() && std::all_of(value.begin(), value.end(), [](const oci::Json& item) {
            return item.is_number_unsigned();
          }));
}

bool Fits(const oci::Json& value, Type type) {
  switch (type) {
    case Type::kString:
      return value.is_string();
    case Type::kUint:
      return value.is_number_unsigned();
    case Type::kBool:
      return value.is_boolean();
    case Type::kStrings:
      return IsStrings(value);
    case Type::kCounts:
      return IsCounts(value);
    case Type::kError:
      return value.is_object();
  }
  return false;
}

const MemberRow* FindMember(const std::string& name) {
  for (const MemberRow& row : kMembers)
    if (row.name == name) return &row;
  return nullptr;
}

Result<oci::Json> KnownMembers(oci::Json& value) {
  if (!value.is_object()) return Malformed();
  oci::Json known = oci::Json::object();
  for (auto& [name, member] : value.items()) {
    const MemberRow* row = FindMember(name);
    if (row == nullptr) continue;
    if (!Fits(member, row->type)) return Malformed();
    if (row->type == Type::kError)
      known[name] = oci::Json{{"code", CodeName(FileErrorOf(member).code)},
                              {"message", FileErrorOf(member).what}};
    else
      known[name] = std::move(member);
  }
  return known;
}

std::string StringOf(const oci::Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int ErrnoOf(const std::string& name) {
  constexpr int kLastErrno = 133;
  for (int sys = 1; sys <= kLastErrno && !name.empty(); ++sys)
    if (ErrnoName(sys) == name) return sys;
  return 0;
}

}  // namespace

Result<FileLine> ParseFileLine(std::string_view line) {
  auto parsed = oci::ParseJson(line, {.max_bytes = kMaxFileReplyBytes, .max_depth = 8});
  if (!parsed || !parsed->is_object() || parsed->size() != 1) return Malformed();
  FileLine known{.kind = parsed->begin().key(), .value = {}};
  if (std::find(std::begin(kKinds), std::end(kKinds), known.kind) == std::end(kKinds))
    return Malformed();
  ASSIGN_OR_RETURN(known.value, KnownMembers(parsed->begin().value()));
  return known;
}

Error FileErrorOf(const oci::Json& value) {
  Error error{.code = CodeOfName(StringOf(value, "code")).value_or(Code::kUnavailable),
              .sys = ErrnoOf(StringOf(value, "errno")),
              .what = StringOf(value, "message").substr(0, kMaxFileErrorBytes),
              .field = StringOf(value, "field").substr(0, kMaxNameBytes)};
  return error;
}

void PutPath(oci::Json& object, const std::string& name, const std::string& path) {
  if (IsUtf8(path))
    object[name] = path;
  else
    object[name + "_base64"] = Base64Encode(path);
}

Result<std::string> EntityTagOf(const oci::Json& entry) {
  const std::string tag = StringOf(entry, "etag");
  if (tag.empty() || tag.size() > 160 ||
      tag.find_first_not_of("0123456789abcdef.-") != std::string::npos)
    return Malformed();
  return tag;
}

}  // namespace hutch::daemon
