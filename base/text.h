// Small text conversions: strict numbers, sizes, ids, hex, times.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch {

// Decimal only, no sign, no space, nothing behind it; kInvalidArgument otherwise or when above max.
Result<uint64_t> ParseUint(std::string_view text, uint64_t max = UINT64_MAX);
// A uid or gid: 0 .. 2^32-2 (2^32-1 means "no change" to the kernel and is refused).
Result<uint32_t> ParseId(std::string_view text);
// "0-3,7", as the kernel writes sets of CPUs and of memory nodes: sorted, each once, none above
// max. kInvalidArgument for anything else, an empty list included.
Result<std::vector<uint32_t>> ParseNumberList(std::string_view text, uint32_t max);
// "512MiB", "1GiB", "64KiB", "1000", "2GB" (decimal), "10B". kInvalidArgument otherwise.
Result<uint64_t> ParseSize(std::string_view text);
// "512.0 MiB" for people.
std::string FormatSize(uint64_t bytes);

std::vector<std::string> Split(std::string_view text, char separator);  // keeps empty parts
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view Trim(std::string_view text);  // ASCII white space off both ends
std::string HexEncode(std::string_view bytes);
// Whether text is valid UTF-8 (no overlong forms, no surrogates).
bool IsUtf8(std::string_view text);

// `count` lower-case base32 characters (a-z2-7) from getrandom(2).
std::string RandomBase32(size_t count);

using WallTime = std::chrono::system_clock::time_point;
// RFC 3339 in UTC with milliseconds: "2026-01-31T09:08:07.006Z".
std::string FormatRfc3339(WallTime time);
Result<WallTime> ParseRfc3339(std::string_view text);

}  // namespace hutch
