// Who may ask over TCP: names, roles and the SHA-256 of each one's token. The tokens themselves are
// kept nowhere. docs/access.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::daemon {

// Each may do what those before it may.
enum class Role : uint8_t { kRead, kUse, kAdmin };
const char* RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

struct TokenRow {
  std::string name;
  Role role = Role::kRead;
  std::string sha256;  // of the token, in lower-case hexadecimal
};

class Tokens {
 public:
  Tokens() = default;  // none: nobody is let in
  // A list of {"name", "role", "sha256"}. kInvalidArgument with the field ("[2].role").
  static Result<Tokens> Parse(std::string_view json);
  // The same from a file that belongs to root or to whom we run as, mode 0600. The error names it.
  static Result<Tokens> Load(const std::string& path);

  // The row of a token as it was presented; nullptr: of none. Looks at every row in the same time,
  // whatever fits.
  const TokenRow* Find(std::string_view presented) const;
  size_t size() const { return rows_.size(); }

 private:
  std::vector<TokenRow> rows_;
};

// Whether two texts are equal, in a time that their lengths alone decide.
bool EqualInConstantTime(std::string_view a, std::string_view b);

struct NewToken {
  std::string token;  // "hutch_" and 32 random bytes in base64url
  std::string row;    // of the file, as JSON
};
// kInvalidArgument for a name or role that the file could not have.
Result<NewToken> MakeToken(const std::string& name, const std::string& role);

}  // namespace hutch::daemon
