#include "daemon/tokens.h"

#include <sys/random.h>

#include <algorithm>

#include "base/base64.h"
#include "base/operator_file.h"
#include "daemon/limits.h"
#include "oci/json.h"
#include "rootfs/digest.h"

namespace hutch::daemon {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr std::string_view kPrefix = "hutch_";
constexpr size_t kSha256HexDigits = 64;
constexpr std::string_view kDigestPrefix = "sha256:";

struct RoleRow {
  Role role;
  const char* name;
};
constexpr RoleRow kRoles[] = {
    {Role::kRead, "read"},
    {Role::kUse, "use"},
    {Role::kAdmin, "admin"},
};

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

std::string HashOf(std::string_view token) {
  return rootfs::DigestOf(token).substr(kDigestPrefix.size());
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

bool IsHash(std::string_view text) {
  return text.size() == kSha256HexDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

constexpr char kNameRule[] = "must be 1 to 63 letters, digits, dots, dashes and underscores";

Result<TokenRow> ParseRow(const oci::Json& json, const std::string& path) {
  TokenRow row;
  std::string role;
  oci::ObjectReader reader(json, path);
  reader.String("name", &row.name).String("role", &role).String("sha256", &row.sha256);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  if (!IsName(row.name)) return Invalid(kNameRule, path + ".name");
  const std::optional<Role> known = ParseRole(role);
  if (!known) return Invalid("must be read, use or admin", path + ".role");
  row.role = *known;
  if (!IsHash(row.sha256))
    return Invalid("must be the SHA-256 of the token: 64 lower-case hexadecimal digits",
                   path + ".sha256");
  return row;
}

}  // namespace

const char* RoleName(Role role) { return kRoles[static_cast<size_t>(role)].name; }

std::optional<Role> ParseRole(std::string_view name) {
  for (const RoleRow& row : kRoles)
    if (row.name == name) return row.role;
  return std::nullopt;
}

Result<Tokens> Tokens::Parse(std::string_view json) {
  ASSIGN_OR_RETURN(const oci::Json list,
                   oci::ParseJson(json, {.max_bytes = kMaxTokensFileBytes, .max_depth = 4}));
  if (!list.is_array()) return Invalid("must be a list of tokens", "");
  if (list.size() > kMaxTokens)
    return Invalid("has more than " + std::to_string(kMaxTokens) + " tokens", "");
  Tokens tokens;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = "[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(TokenRow row, ParseRow(list[i], path));
    for (const TokenRow& other : tokens.rows_) {
      if (other.name == row.name) return Invalid("another token has this name", path + ".name");
      if (other.sha256 == row.sha256)
        return Invalid("another row has this token", path + ".sha256");
    }
    tokens.rows_.push_back(std::move(row));
  }
  return tokens;
}

Result<Tokens> Tokens::Load(const std::string& path) {
  Result<std::string> text = ReadOperatorFile(path, kMaxTokensFileBytes, Readers::kOwnerOnly);
  if (!text.has_value()) {
    Error error = std::move(text).error();
    error.field = "tcp.tokens_file";
    if (error.code == Code::kNotFound)
      error.hint = "hutchd --new-token NAME ROLE prints a row of it";
    return error;
  }
  Result<Tokens> tokens = Parse(*text);
  if (tokens.has_value()) return tokens;
  Error error = std::move(tokens).error();
  error.what = path + (error.field.empty() ? ": " : ": " + error.field + " ") + error.what;
  error.field = "tcp.tokens_file";
  return error;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char differs = 0;  // so that no compiler leaves the loop early
  for (size_t i = 0; i < a.size(); ++i)
    differs = static_cast<unsigned char>(
        differs | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  return differs == 0;
}

const TokenRow* Tokens::Find(std::string_view presented) const {
  const std::string hash = HashOf(presented);
  const TokenRow* found = nullptr;
  for (const TokenRow& row : rows_)
    if (EqualInConstantTime(row.sha256, hash)) found = &row;
  return found;
}

Result<NewToken> MakeToken(const std::string& name, const std::string& role) {
  if (!IsName(name)) return Invalid(kNameRule, "name");
  if (!ParseRole(role)) return Invalid("must be read, use or admin", "role");
  char bytes[kTokenBytes];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return SysError(errno, "getrandom");
  std::string text = Base64Encode({bytes, sizeof bytes});
  while (text.ends_with('=')) text.pop_back();
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  NewToken made{.token = std::string(kPrefix) + text, .row = ""};
  made.row = oci::PrintJson({{"name", name}, {"role", role}, {"sha256", HashOf(made.token)}});
  return made;
}

}  // namespace hutch::daemon
