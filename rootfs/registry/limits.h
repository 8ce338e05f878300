// Bounds on what is asked of registries, with units. docs/limits.md has them with their tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::rootfs::registry {

inline constexpr uint64_t kMaxDownloadBytes = 32ull << 30;  // packed layers of one image together
inline constexpr size_t kMaxHeadBytes = 65536;              // status line and headers of one answer
inline constexpr size_t kMaxErrorBodyBytes = 65536;         // kept of an answer that is an error
inline constexpr size_t kMaxShownErrorBytes = 300;          // of a registry's own words
inline constexpr size_t kMaxTokenReplyBytes = 262144;       // a token service's answer
inline constexpr size_t kMaxTokenBytes = 32768;             // a token
inline constexpr size_t kMaxChallenges = 16;                // in one WWW-Authenticate
inline constexpr size_t kMaxChallengeParameters = 32;       // of one challenge
inline constexpr size_t kMaxAuthFileBytes = 1u << 20;       // Docker's config.json
inline constexpr size_t kMaxHelperBytes = 65536;            // a credential helper's answer
inline constexpr unsigned kHelperSeconds = 20;              // for its answer
inline constexpr int kMaxRedirects = 5;                     // of one request
inline constexpr unsigned kMaxRetryAfterSeconds = 60;       // waited for; more is an error
inline constexpr unsigned kFirstRetryMs = 250;              // then doubled, with jitter
inline constexpr unsigned kLongestRetryMs = 15'000;         // between two attempts
inline constexpr uint64_t kRetryProgressBytes = 1u << 20;   // more of a layer: retries start anew
inline constexpr unsigned kMinBytesPerSecond = 1024;        // slower for stall_seconds: a failure
inline constexpr unsigned kDocumentSeconds = 120;           // for a manifest, configuration, token
inline constexpr unsigned kPullSeconds = 21'600;            // for one pull
inline constexpr size_t kHashSliceBytes = 16u << 20;  // of a part, before others get their turn
inline constexpr unsigned kPartDays = 7;              // a part that nobody goes on with is kept

}  // namespace hutch::rootfs::registry
