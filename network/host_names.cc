#include "network/host_names.h"

#include <idn2.h>
#include <libpsl.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/text.h"
#include "network/limits.h"
#include "network/policy.h"

namespace hutch::network {
namespace {

Error Refused(std::string what, std::string hint = "") {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .hint = std::move(hint)};
}

struct Freed {
  void operator()(void* text) const { ::free(text); }  // idn2 allocates with malloc
};
using CText = std::unique_ptr<char, Freed>;

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool IsLabelChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

Status CheckLabel(const std::string& label) {
  if (label.empty()) return Refused("has an empty label between its dots");
  if (label.size() > kMaxHostLabelBytes) return Refused("has a label of more than 63 bytes");
  if (!std::all_of(label.begin(), label.end(), IsLabelChar))
    return Refused("has characters that no host name has");
  if (label.front() == '-' || label.back() == '-')
    return Refused("has a label that begins or ends with a hyphen");
  return OkStatus();
}

// What resolvers read as a part of an IPv4 address (inet_aton(3): "127.1", "0x7f.1").
bool IsNumber(std::string_view label) {
  const bool hex = label.starts_with("0x");
  if (hex) label.remove_prefix(2);
  return std::all_of(label.begin(), label.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (hex && c >= 'a' && c <= 'f');
  });
}

// What to do about a name that is not ASCII: the form to write, where there is one.
std::string AsciiHint(const std::string& text) {
  char* ascii = nullptr;
  if (::idn2_to_ascii_8z(text.c_str(), &ascii, IDN2_NONTRANSITIONAL) != IDN2_OK) return "";
  const CText owned(ascii);
  return std::string("if this very name is meant, write ") + ascii;
}

// Scripts that look alike, by their blocks; what is in none of them (digits, marks, other scripts)
// counts for nothing.
enum Script : unsigned {
  kLatin = 1,
  kGreek = 2,
  kCyrillic = 4,
  kArmenian = 8,
  kCherokee = 16,
  kOtherScript = 32
};
struct ScriptBlock {
  char32_t first, last;
  Script script;
};
constexpr ScriptBlock kScripts[] = {
    {U'a', U'z', kLatin},           {0x00C0, 0x024F, kLatin},    {0x0250, 0x02AF, kLatin},
    {0x0370, 0x03FF, kGreek},       {0x0400, 0x052F, kCyrillic}, {0x0530, 0x058F, kArmenian},
    {0x0590, 0x109F, kOtherScript}, {0x13A0, 0x13FF, kCherokee}, {0x1C80, 0x1C8F, kCyrillic},
    {0x1D00, 0x1DBF, kLatin},       {0x1E00, 0x1EFF, kLatin},    {0x1F00, 0x1FFF, kGreek},
    {0x2C60, 0x2C7F, kLatin},       {0x2DE0, 0x2DFF, kCyrillic}, {0xA640, 0xA69F, kCyrillic},
    {0xA720, 0xA7FF, kLatin},       {0xAB30, 0xAB6F, kLatin},    {0xAB70, 0xABBF, kCherokee},
};

unsigned ScriptOf(char32_t c) {
  for (const ScriptBlock& block : kScripts)
    if (c >= block.first && c <= block.last) return block.script;
  return 0;
}

// An A-label (RFC 5890) must stand for something, in one script: "paypal" with a Cyrillic "a" must
// not pass for what it looks like. Whole words of another script are what they are. What is not the
// only form of what it stands for (wide letters, say) is no A-label.
Status CheckALabel(const std::string& label) {
  uint32_t* decoded = nullptr;
  if (::idn2_to_unicode_8z4z(label.c_str(), &decoded, 0) != IDN2_OK)
    return Refused("has a label that stands for nothing: " + label);
  const std::unique_ptr<uint32_t, Freed> owned(decoded);
  char* encoded = nullptr;
  if (::idn2_to_ascii_4z(decoded, &encoded, IDN2_NONTRANSITIONAL) != IDN2_OK)
    return Refused("has a label that stands for nothing: " + label);
  const CText again(encoded);
  if (label != encoded) return Refused("has a label that stands for nothing: " + label);
  unsigned scripts = 0;
  for (const uint32_t* c = decoded; *c != 0; ++c) scripts |= ScriptOf(*c);
  if ((scripts & (scripts - 1)) != 0)
    return Refused("mixes letters of scripts that look alike in " + label);
  return OkStatus();
}

Status CheckSuffix(const std::string& name, bool below) {
  const psl_ctx_t* const list = ::psl_builtin();
  if (list == nullptr) return Error{.code = Code::kUnsupported, .what = "no public suffix list"};
  if (below && ::psl_is_public_suffix2(list, name.c_str(), PSL_TYPE_ANY) != 0)
    return Refused("lets in everybody: anyone can have a name below " + name,
                   "list the names one by one");
  if (!below &&
      ::psl_is_public_suffix2(list, name.c_str(), PSL_TYPE_ICANN | PSL_TYPE_NO_STAR_RULE) != 0)
    return Refused("is a public suffix, not a host");
  return OkStatus();
}

// Shapes that people write and that mean something else than a host.
Status CheckShape(std::string_view text) {
  if (text.empty()) return Refused("is empty");
  if (text.find("://") != std::string_view::npos)
    return Refused("is a URL", "write the host, and the port behind a colon: example.com:443");
  if (text == "*" || text == "*.")
    return Refused("would allow every name", "that is the mode \"open\"");
  if (text.find('/') != std::string_view::npos)
    return Refused("has a path", "write {\"host\": \"example.com\", \"paths\": [\"/a/*\"]}");
  if (text.find('@') != std::string_view::npos) return Refused("has a user");
  return OkStatus();
}

}  // namespace

Result<std::string> NormalHost(std::string_view text) {
  if (text.size() > kMaxHostBytes + 1) return Refused("is longer than 253 bytes");
  if (!IsAscii(text)) return Refused("is not ASCII");
  if (ParseAddress(text).has_value()) return Refused("is an address, not a name");
  std::string name(text);
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (name.ends_with('.')) name.pop_back();
  if (name.empty()) return Refused("is empty");
  if (name.size() > kMaxHostBytes) return Refused("is longer than 253 bytes");
  const std::vector<std::string> labels = Split(name, '.');
  for (const std::string& label : labels) RETURN_IF_ERROR(CheckLabel(label));
  if (IsNumber(labels.back())) return Refused("could be read as an address");
  return name;
}

Result<std::string> ParseRuleHost(std::string_view text) {
  RETURN_IF_ERROR(CheckShape(text));
  if (!IsAscii(text)) return Refused("is not ASCII", AsciiHint(std::string(text)));
  const bool below = text.starts_with("*.");
  if (below) text.remove_prefix(2);
  if (text.find('*') != std::string_view::npos)
    return Refused("may have a \"*\" only as its whole first label");
  ASSIGN_OR_RETURN(const std::string name, NormalHost(text));
  if (name == "localhost" || name.ends_with(".localhost"))
    return Refused("is a name of the loopback, inside as well as outside");
  for (const std::string& label : Split(name, '.'))
    if (label.starts_with("xn--")) RETURN_IF_ERROR(CheckALabel(label));
  RETURN_IF_ERROR(CheckSuffix(name, below));
  return below ? "*." + name : name;
}

bool HostMatches(std::string_view rule_host, std::string_view host) {
  if (!rule_host.starts_with("*.")) return !rule_host.empty() && rule_host == host;
  rule_host.remove_prefix(1);  // ".pkgs.example.org"
  return host.size() > rule_host.size() && host.ends_with(rule_host);
}

}  // namespace hutch::network
