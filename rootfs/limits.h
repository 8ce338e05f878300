// Bounds on images, with units. docs/limits.md has them with their tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::rootfs {

inline constexpr uint64_t kMaxLayerBytes = 32ull << 30;  // unpacked, logical sizes together
inline constexpr uint64_t kMaxLayerRatio =
    500;  // unpacked to packed bytes, once past kRatioFreeBytes
inline constexpr uint64_t kRatioFreeBytes = 64u << 20;
inline constexpr uint64_t kMaxLayerEntries = 2'000'000;
inline constexpr size_t kMaxEntryPathBytes = 4095;
inline constexpr size_t kMaxEntryDepth = 128;
inline constexpr size_t kMaxEntryNameBytes = 255;
inline constexpr size_t kMaxXattrBytes = 65536;
inline constexpr size_t kMaxXattrsPerEntry = 64;
inline constexpr size_t kMaxDocumentBytes = 8u << 20;  // a manifest, index or configuration
inline constexpr size_t kMaxReportBytes = 32u << 20;   // what the unpacker may say
inline constexpr unsigned kMaxUnpackSeconds = 1800;    // of CPU time, for one layer
inline constexpr uint32_t kMaxOwnerId = 65535;         // uid and gid of an entry

}  // namespace hutch::rootfs
