// Bounds of the egress program, with units. docs/limits.md has them with their tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hutch::network {

using Milliseconds = std::chrono::milliseconds;

// Between hutchd and the program.
inline constexpr size_t kMaxControlBytes = 32 * 1024;         // of one message
inline constexpr size_t kMaxSettingsBytes = 4 * 1024 * 1024;  // in a sealed file beside it
inline constexpr size_t kMaxResolverFileBytes = 256 * 1024;   // of resolv.conf, and of hosts
inline constexpr int kControlBufferBytes = 8 * 1024 * 1024;
inline constexpr Milliseconds kStartDeadline{10000};

// Names.
inline constexpr size_t kMaxDnsMessageBytes = 1232;  // of an answer by UDP, and of a question
inline constexpr size_t kMaxNamesPerSandbox = 256;   // remembered with their addresses
inline constexpr size_t kMaxLookupsPerSandbox = 32;  // in flight
inline constexpr size_t kMaxLookups = 1024;          // in flight, all sandboxes together
inline constexpr size_t kMaxWaitingPerName = 256;    // questions and connections for one lookup
inline constexpr size_t kMaxAddressesPerName = 32;
inline constexpr uint32_t kMaxNamesPerSecond = 50;  // looked up for one sandbox, and
inline constexpr uint32_t kMaxNamesAtOnce = 200;    // that many at once
inline constexpr size_t kMaxDnsConnections = 32;    // by TCP, of one sandbox
inline constexpr std::chrono::seconds kMinPin{30};  // whatever the record says
inline constexpr std::chrono::seconds kMaxPin{600};
inline constexpr std::chrono::seconds kPinGrace{600};  // an expired address still is its name's
inline constexpr std::chrono::seconds kMissingPin{5};  // "no such name" is remembered

// Connections.
inline constexpr size_t kMaxSessions = 1024;     // of one sandbox
inline constexpr size_t kMaxHalfOpen = 128;      // of them not yet connected
inline constexpr size_t kMaxAllSessions = 8192;  // of all sandboxes together, and half as many more
inline constexpr size_t kAssuredSessions = 32;   // for those that have fewer than this
inline constexpr size_t kMaxHelloBytes = 20480;  // a TLS ClientHello with its record headers
inline constexpr size_t kMaxHeadBytes = 32768;   // a request's or answer's head
inline constexpr size_t kMaxHeadFields = 128;
inline constexpr int kMaxInterims = 16;  // "1xx" before an answer
inline constexpr size_t kMaxChunkLineBytes = 1024;
inline constexpr size_t kMaxTrailerBytes = 8192;
inline constexpr size_t kBlockBytes = 65536;  // one read
inline constexpr int kBlocksPerTurn = 4;      // of one connection, then others get their turn
inline constexpr int kAcceptsPerTurn = 16;
inline constexpr Milliseconds kHeadDeadline{10000};     // first bytes, heads
inline constexpr Milliseconds kConnectDeadline{10000};  // all addresses of a name together
inline constexpr Milliseconds kNextAddress{250};        // then another is tried beside it
inline constexpr Milliseconds kKeepAlive{60000};        // between requests
inline constexpr Milliseconds kMeterPause{20};

// Denials told to hutchd.
inline constexpr size_t kMaxDenialKinds = 64;  // different ones of one sandbox in a second
inline constexpr Milliseconds kDenialPeriod{1000};

}  // namespace hutch::network
