#include "base/text.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <set>

namespace hutch {
namespace {

Error BadText(std::string_view what, std::string_view text) {
  return Error{
      .code = Code::kInvalidArgument,
      .what = "not a " + std::string(what) + ": \"" + std::string(text.substr(0, 64)) + "\""};
}

struct UnitRow {
  std::string_view name;
  uint64_t factor;
};
constexpr UnitRow kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1u << 10},
    {"MiB", 1u << 20},
    {"GiB", 1u << 30},
    {"TiB", 1ull << 40},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
};

// Length of the UTF-8 sequence at the start of `text`, 0 when there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xC2 && lead <= 0xDF   ? 2
                   : (lead & 0xF0) == 0xE0        ? 3
                   : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                  : 0;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
  return n;
}

}  // namespace

Result<uint64_t> ParseUint(std::string_view text, uint64_t max) {
  if (text.empty()) return BadText("number", text);
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return BadText("number", text);
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (value > (max - digit) / 10) return BadText("number within range", text);
    value = value * 10 + digit;
  }
  if (value > max) return BadText("number within range", text);
  return value;
}

Result<uint32_t> ParseId(std::string_view text) {
  ASSIGN_OR_RETURN(const uint64_t value, ParseUint(text, UINT32_MAX - 1));
  return static_cast<uint32_t>(value);
}

Result<std::vector<uint32_t>> ParseNumberList(std::string_view text, uint32_t max) {
  std::set<uint32_t> numbers;
  for (const std::string& part : Split(text, ',')) {
    const size_t dash = part.find('-');
    ASSIGN_OR_RETURN(const uint64_t first, ParseUint(part.substr(0, dash), max));
    uint64_t last = first;
    if (dash != std::string::npos) {
      ASSIGN_OR_RETURN(last, ParseUint(part.substr(dash + 1), max));
    }
    if (last < first) return BadText("range", part);
    for (uint64_t n = first; n <= last; ++n) numbers.insert(static_cast<uint32_t>(n));
  }
  return std::vector<uint32_t>(numbers.begin(), numbers.end());
}

Result<uint64_t> ParseSize(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  ASSIGN_OR_RETURN(const uint64_t number, ParseUint(text.substr(0, end)));
  for (const UnitRow& unit : kUnits) {
    if (text.substr(end) != unit.name) continue;
    if (number > UINT64_MAX / unit.factor) return BadText("size within range", text);
    return number * unit.factor;
  }
  return BadText("size (like 512MiB)", text);
}

std::string FormatSize(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    parts.emplace_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out.append(i == 0 ? "" : separator).append(parts[i]);
  return out;
}

std::string_view Trim(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t\r\n") - start + 1);
}

std::string HexEncode(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = SequenceLength(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string RandomBase32(size_t count) {
  constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::string text(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t n = ::getrandom(text.data() + done, count - done, 0);
    if (n > 0)
      done += static_cast<size_t>(n);
    else
      CHECK(errno == EINTR);
  }
  for (char& c : text) c = kAlphabet[static_cast<unsigned char>(c) & 31];
  return text;
}

std::string FormatRfc3339(WallTime time) {
  using namespace std::chrono;
  const auto ms = duration_cast<milliseconds>(time.time_since_epoch()).count();
  const time_t seconds = static_cast<time_t>(ms / 1000);
  std::tm tm{};
  ::gmtime_r(&seconds, &tm);
  char date[32], out[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
  std::snprintf(out, sizeof out, "%s.%03dZ", date, static_cast<int>(ms % 1000));
  return out;
}

Result<WallTime> ParseRfc3339(std::string_view text) {
  std::tm tm{};
  int ms = 0, used = 0;
  const std::string copy(text);
  const int fields =
      std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &tm.tm_year, &tm.tm_mon,
                  &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms, &used);
  if (fields != 7 || static_cast<size_t>(used) != text.size())
    return BadText("RFC 3339 UTC time", text);
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&tm)) + std::chrono::milliseconds(ms);
}

}  // namespace hutch
