// Every bound of a file request, in one place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::files {

inline constexpr size_t kMaxPathBytes = 4095;
inline constexpr size_t kMaxRequestBytes = 16 * 1024 * 1024;  // the request's JSON
inline constexpr size_t kMaxReplyBytes = 16 * 1024 * 1024;    // all lines of one reply
inline constexpr size_t kReplyReserveBytes = 64 * 1024;       // kept for the line that ends it

inline constexpr uint64_t kMaxListLimit = 10'000;        // entries of one answer
inline constexpr uint64_t kMaxWalkSteps = 4'000'000;     // names looked at for one answer
inline constexpr size_t kMaxTreeDepth = 512;             // directories below each other
inline constexpr size_t kMaxSortedNames = 65'536;        // names of one directory held at once
inline constexpr size_t kMaxGlobBytes = 1024;            // a glob's pattern
inline constexpr size_t kMaxGlobAlternatives = 64;       // patterns that its braces stand for
inline constexpr size_t kMaxPatternBytes = 4096;         // grep's pattern
inline constexpr uint64_t kMaxMatches = 10'000;          // of one grep
inline constexpr uint64_t kMaxContextLines = 20;         // on each side of a match
inline constexpr size_t kMaxGrepLineBytes = 256 * 1024;  // a longer line is searched in pieces
inline constexpr size_t kMaxShownLineBytes = 2048;       // of a line in an answer
inline constexpr uint64_t kMaxGrepBytes = 1ull << 30;    // searched for one answer

inline constexpr uint64_t kMaxEditBytes = 64 * 1024 * 1024;  // a file that is edited
inline constexpr size_t kMaxBatchFiles = 256;
inline constexpr uint64_t kMaxBatchBytes = 8 * 1024 * 1024;  // contents of one batch together
inline constexpr size_t kMaxWatches = 8192;                  // directories watched by one request
inline constexpr uint64_t kMaxUnpackEntries = 1'000'000;
inline constexpr uint64_t kMaxSparsePieces = 4096;  // holes of a packed file that are kept

inline constexpr size_t kCopyBytes = 256 * 1024;  // moved at once
inline constexpr int kMaxLinks = 40;              // symlinks followed, as the kernel does
inline constexpr size_t kFlattenDepth = 128;      // a deeper directory is moved up to be removed

}  // namespace hutch::files
